"""What a training run will need and how fast it will be, before a GPU is hired.

Pure arithmetic over a model's shape, a cluster and a layout; `python -m training.plan` is its
command line. Constants that cannot be derived are in `calibration.yaml`, fitted on published runs.
"""
