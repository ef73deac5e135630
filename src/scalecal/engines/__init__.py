"""Where work is done: in this process, in several on this machine, or on a Ray cluster.

An engine is given a function and tasks; it hands tasks to workers as they become free, holds only
as many as there are workers, gives the task of a lost worker to another, and yields results as
they finish. Nothing else in the package knows how, and nothing else imports Ray.

``engine.run(work, tasks)`` calls ``work(state, task)``. The state is made once per worker by
``setup(worker)`` (an encoder on a GPU, say); without `setup` it is the `Worker` itself.

Examples
--------
>>> from scalecal.engines import open_engine
>>> def double(worker, number):
...     return 2 * number
>>> with open_engine("local") as engine:
...     sorted(engine.run(double, [1, 2, 3]))
[(0, 2), (1, 4), (2, 6)]
"""

from scalecal.engines.local import ENGINES, Engine, Worker, open_engine

__all__ = ["ENGINES", "Engine", "Worker", "open_engine"]
