"""``python -m horovod.runner.launch``: horovodrun, which is Gangline's."""

from gangline.launch.horovodrun import main

if __name__ == "__main__":
    main()
