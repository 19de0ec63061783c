"""The stores that ship with the service, one package or module for each kind of agent."""
