"""An image through a model on a SLURM cluster. Usage: python slurm.py MODEL IMAGE.zarr OUTPUT.zarr JOBS.

The same command continues a run that was interrupted. For class numbers instead of scores, add argmax=True.

Start it on a login node, in the environment that the jobs have too; files are on a file system that all nodes see.
Change what is your site's: queue, account, cores, memory, walltime and the environment.
"""

import sys

import zarr
from dask_jobqueue import SLURMCluster
from distributed import Client

import unpool

TILE = (2048, 2048)


def show(progress):
    left = "?" if progress.left is None else round(progress.left)
    print(f"{progress.done} of {progress.tiles} tiles, {left} s left, peak memory {progress.peak >> 20} MiB")


def main(model, image, output, jobs):
    with (
        SLURMCluster(
            queue="regular",
            account="my-account",
            cores=16,  # of a job: so many tiles at once
            memory="64GB",  # of a job, for 16 tiles: see `unpool inspect MODEL --size ...`
            walltime="01:00:00",
            job_script_prologue=["source ~/venv/bin/activate", "export NUMBA_CACHE_DIR=$HOME/.cache/numba"],
            worker_extra_args=["--lifetime", "55m", "--lifetime-stagger", "4m"],  # ends before the walltime does
        ) as cluster,
        Client(cluster) as client,
    ):
        cluster.scale(jobs=int(jobs))
        print("dashboard:", client.dashboard_link)
        session = unpool.InferenceSession(model)
        read = zarr.open_array(image, mode="r")
        made = unpool.map_tiles(session, read, TILE, client=client, to=output, resume=True, on_progress=show)
        print({name: array.shape for name, array in made.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
