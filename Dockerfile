# serving-audit as an image: docker build -t serving-audit:0.1.0 .
#   docker run --rm serving-audit:0.1.0 run embedded
#   docker run --rm -e LLM_API_KEY -v "$PWD:/work" --user "$(id -u)" --network host \
#     serving-audit:0.1.0 run prod.yaml -o html=report.html
# As you (--user) it may write reports into your folder, on the host's network 127.0.0.1 is what the profile means by it.
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY auditor auditor
COPY checks checks
COPY profiles profiles
RUN python -m venv /opt/serving-audit \
 && /opt/serving-audit/bin/pip install --no-cache-dir --quiet -c constraints.txt . \
 && /opt/serving-audit/bin/pip uninstall --quiet --yes pip \
 && /opt/serving-audit/bin/python -m compileall -q /opt/serving-audit/lib

FROM python:3.12-slim
LABEL org.opencontainers.image.title="serving-audit" \
      org.opencontainers.image.description="Is this LLM deployment ready to serve?" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/serving-audit /opt/serving-audit
ENV PATH=/opt/serving-audit/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# By number, so that runAsNonRoot can be checked without a look into the image.
USER 65532:65532
WORKDIR /work
ENTRYPOINT ["audit"]
CMD ["--help"]
