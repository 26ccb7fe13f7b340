# One image for web and workers; the command differs:
#   web            python manage.py web --host 0.0.0.0
#   ingest worker  python manage.py worker ingest
#   messages       python manage.py worker messages     (webhooks and mails)
#   gpu worker     python manage.py worker gpu          (built with --build-arg EXTRAS=gpu, run with --gpus)
#   everything     python manage.py serve --host 0.0.0.0     (the default; data in the volume /data)
#   what is wrong  docker exec … python manage.py doctor
# An orchestrator asks /health/live (204) and /health/ready (200, 503): docs/operate.md.
# DATABASE_URL, REDIS_URL and RIDGEPOINT_S3_BUCKET point web and workers on several hosts at shared servers.
FROM python:3.12-slim

ARG EXTRAS=""
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 RIDGEPOINT_HOME=/data RIDGEPOINT_SIGN_IN=1
WORKDIR /app

COPY pyproject.toml requirements.lock ./
RUN python -c "import sys, tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
        print('\n'.join(p['dependencies'] + [r for e in sys.argv[1:] for r in p['optional-dependencies'][e]]))" $EXTRAS \
    | pip install -c requirements.lock -r /dev/stdin

COPY . .
RUN useradd --uid 10001 --create-home ridgepoint && mkdir /data && chown ridgepoint /data
USER ridgepoint
VOLUME /data
EXPOSE 8000
HEALTHCHECK --start-period=30s CMD python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health/ready', timeout=5)"
CMD ["python", "manage.py", "serve", "--host", "0.0.0.0", "--port", "8000"]
