"""What a pod's image stands for on this machine: local images, the user's image map, a container runtime."""
