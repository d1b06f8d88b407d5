#!/bin/sh
# Starts a rank on each host that discover_hosts.sh names, anew whenever these change: `follow_hosts.sh FOLDER`.
# What each world says of itself is a line of FOLDER/worlds; it ends once there is FOLDER/stop.
while [ ! -e "$1/stop" ]; do
    hosts=$(/etc/mpi/discover_hosts.sh | paste -sd, -)
    if [ -n "$hosts" ] && [ "$hosts" != "$told" ]; then
        count=$(echo "$hosts" | tr , '\n' | wc -l)
        # A host that went meanwhile ends this world; the next one is without it.
        ranks=$(timeout 60 mpirun -np "$count" --host "$hosts" hostname) && told=$hosts &&
            echo "$ranks" | sort | paste -sd' ' - >> "$1/worlds"
    fi
    sleep 0.2
done
