"""The session reference service: stores, projection limits, resolver, engine, transports, command line."""
