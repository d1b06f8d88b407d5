"""Programs that a job brings along: its pods run them by whatever Python their image has, from 3.8 on."""
