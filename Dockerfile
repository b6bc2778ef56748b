# saltwm on a CPU, without root:  docker build -t saltwm . && docker run --rm saltwm demo two-room
FROM python:3.11-slim

# MuJoCo's software renderers.
RUN apt-get update && apt-get install -y --no-install-recommends libegl1 libosmesa6 libgl1 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/saltwm
COPY constraints.txt ./
COPY requirements requirements
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/runtime.txt
# Its CPU build, by version: the registry has the CUDA build only.
RUN pip install --no-cache-dir -c constraints.txt torch --index-url https://download.pytorch.org/whl/cpu
COPY pyproject.toml README.md LICENSE setup.py MANIFEST.in ./
COPY saltwm saltwm
COPY checkpoints checkpoints
RUN pip install --no-cache-dir -c constraints.txt --no-build-isolation '.[sim,explore,export,import]'

RUN useradd --create-home saltwm
USER saltwm
WORKDIR /home/saltwm
ENTRYPOINT ["saltwm"]
