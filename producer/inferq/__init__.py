"""What asks: producers, the wire contract and the command line of inferq."""
