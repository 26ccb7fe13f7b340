# One image for web and workers; the command differs:
#   web            python manage.py web --host 0.0.0.0
#   ingest worker  python manage.py worker ingest
#   messages       python manage.py worker messages     (webhooks and mails)
#   gpu worker     python manage.py worker gpu          (built with --build-arg EXTRAS=gpu, run with --gpus; ncu and nsys come
#                  from the host or from NVIDIA's packages: docs/operate-deploy.md, "Image")
#   everything     python manage.py serve --host 0.0.0.0     (the default; data in the volume /data)
#   what is wrong  docker exec … python manage.py doctor
# An orchestrator asks /health/live (204) and /health/ready (200, 503): docs/operate.md.
# DATABASE_URL, REDIS_URL and RIDGEPOINT_S3_BUCKET point web and workers on several hosts at shared servers.
# BASE: another image with Python 3.11 or later, better by its digest: --build-arg BASE=python:3.12-slim@sha256:…
ARG BASE=python:3.12-slim
FROM ${BASE}

ARG EXTRAS=""
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 RIDGEPOINT_HOME=/data RIDGEPOINT_SIGN_IN=1
WORKDIR /app

# files whose hash is not in requirements.lock are refused; torch, of EXTRAS=gpu, has a version and no hash there
COPY pyproject.toml requirements.lock ./
COPY webapp/supply/pins.py webapp/supply/
RUN python webapp/supply/pins.py pip | pip install --require-hashes -r /dev/stdin \
    && python webapp/supply/pins.py roots | pip install --require-hashes -c requirements.lock -r /dev/stdin \
    && if [ -n "$EXTRAS" ]; then python webapp/supply/pins.py versions > /tmp/versions \
        && python webapp/supply/pins.py unpinned $EXTRAS | pip install -c /tmp/versions -r /dev/stdin; fi

# Triton compiles the launcher of each kernel with the host's C compiler, against Python's headers: an image that cannot ends here
RUN case " $EXTRAS " in *" gpu "*) \
        headers() { test -e "$(python -c "import sysconfig; print(sysconfig.get_path('include'))")/Python.h"; } \
        && apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
        && { headers || apt-get install -y --no-install-recommends python3-dev; } \
        && rm -rf /var/lib/apt/lists/* \
        && echo '#include <Python.h>' | gcc -shared -fPIC -x c -o /dev/null \
            -I"$(python -c "import sysconfig; print(sysconfig.get_path('include'))")" - ;; \
    esac

COPY . .
RUN useradd --uid 10001 --create-home ridgepoint && mkdir /data && chown ridgepoint /data
USER ridgepoint
VOLUME /data
EXPOSE 8000
HEALTHCHECK --start-period=30s CMD python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health/ready', timeout=5)"
CMD ["python", "manage.py", "serve", "--host", "0.0.0.0", "--port", "8000"]
