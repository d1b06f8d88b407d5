#!/bin/sh
# A launcher of Intel MPI or MPICH gives up on a host without an address, and its workers on a launcher without
# one, which it has only once it is ready; so wait until DNS knows each of them: 20 s at most.
if [ "$K_MPI_JOB_ROLE" = launcher ] && [ -f /etc/mpi/hostfile ]; then
  for host in $(hostname -f) $(cut -d : -f 1 /etc/mpi/hostfile); do
    tries=0
    until getent -s hosts:dns ahostsv4 "$host" >/dev/null || [ $tries -ge 200 ]; do
      tries=$((tries + 1))
      sleep 0.1
    done
  done
fi
exec "$@"
