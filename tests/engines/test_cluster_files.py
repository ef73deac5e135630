"""The example files for clusters, read by the tools that will read them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

CLUSTER = Path(__file__).parents[2] / "examples" / "cluster"


# Fields of KubeRay's v1 API (RayJobSpec, RayClusterSpec, HeadGroupSpec, WorkerGroupSpec); an unknown one
# is refused by the API server.
JOB = {
    *(
        "activeDeadlineSeconds",
        "backoffLimit",
        "rayClusterSpec",
        "submitterPodTemplate",
        "metadata",
    ),
    *("clusterSelector", "submitterConfig", "managedBy", "deletionStrategy", "entrypoint"),
    *("runtimeEnvYAML", "jobId", "submissionMode", "entrypointResources", "entrypointNumCpus"),
    *("entrypointNumGpus", "ttlSecondsAfterFinished", "shutdownAfterJobFinishes", "suspend"),
}
RAY_CLUSTER = {
    *("headGroupSpec", "workerGroupSpecs", "rayVersion", "enableInTreeAutoscaling"),
    *("autoscalerOptions", "headServiceAnnotations", "suspend"),
}
HEAD = {"serviceType", "headService", "enableIngress", "rayStartParams", "template"}
WORKERS = {
    *("groupName", "replicas", "minReplicas", "maxReplicas", "numOfHosts", "rayStartParams"),
    *("template", "scaleStrategy"),
}


def ray_start(arguments: list[str]) -> None:
    """Have Ray's own command line read the options of `ray start`; nothing is started."""
    scripts = pytest.importorskip("ray.scripts.scripts")
    scripts.start.make_context("ray start", arguments)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_ray_job_is_whole() -> None:
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((CLUSTER / "rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert set(job["spec"]) <= JOB
    assert set(cluster) <= RAY_CLUSTER
    assert set(groups[0]) <= HEAD
    assert all(set(group) <= WORKERS for group in groups[1:])
    assert all(isinstance(v, str) for group in groups for v in group["rayStartParams"].values())
    for group in groups:
        options = [
            word
            for key, value in group["rayStartParams"].items()
            for word in (f"--{key}", str(value))
        ]
        ray_start(options)
        pod = group["template"]["spec"]
        mounted = {m["name"] for c in pod["containers"] for m in c["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
    entry = shlex.split(job["spec"]["entrypoint"])
    cards = int(entry[entry.index("--num-gpus") + 1])
    each = int(
        groups[1]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    )
    assert cards == each * groups[1]["maxReplicas"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_slurm_script_parses_and_its_ray_options_exist() -> None:
    script = CLUSTER / "extract.sbatch"
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run([bash, "-n", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = script.read_text().replace("\\\n", " ")
    shared = re.search(r"ray start (.*?) \"\$@\" &", text)
    assert shared is not None
    for more in re.findall(r'start_ray "\$\w+" (.*)', text):
        words = shlex.split(f"{shared[1]} {more}")
        ray_start([re.sub(r"\$\w+", "8", word) for word in words])
