"""What carries messages: standard streams here; sockets and HTTP behind the same seam."""
