"""Claims and volumes of the one-machine cluster: every volume is a folder of this machine."""
