"""What ran: a record of each run, kept with its logs after the job is gone, within bounds."""
