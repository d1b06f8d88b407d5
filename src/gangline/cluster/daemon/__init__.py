"""The processes of the cluster, seen from outside: started, found, restarted, stopped."""
