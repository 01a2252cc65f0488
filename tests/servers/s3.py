"""A real S3 server on the loopback: started, killed, paused and started again by tests, with the same objects."""

import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

from tests.servers.process import lasting_port

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / ".tools" / "s3" / "venv" / "bin" / "weed"
READY_S_MAX = 120.0
BUCKET = "headrace"
KEY_ID, SECRET = "headrace-test", "headrace-test-secret"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
PORTS = (
    *("s3.port", "s3.port.grpc", "master.port", "master.port.grpc"),
    *("volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc"),
)
# Buckets are made, and looked for, without a signature.
IDENTITIES = {
    "identities": [
        {"name": "anonymous", "actions": ["Admin"]},
        {"name": "test", "credentials": [{"accessKey": KEY_ID, "secretKey": SECRET}], "actions": ["Admin"]},
    ]
}


class S3Missing(RuntimeError):
    """There is no S3 server to be had; the message says how to get it."""


class S3Server:
    """It answers, and has its bucket, when the constructor is through."""

    def __init__(self, directory: Path) -> None:
        if not PROGRAM.exists():
            raise S3Missing("the S3 server is missing: run `make s3`")
        self._directory = directory
        self._ports = {name: lasting_port() for name in PORTS}
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "data").mkdir(parents=True, exist_ok=True)
        (directory / "s3.json").write_text(json.dumps(IDENTITIES))
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    def url(self, prefix: str) -> str:
        """As `remote.storage.url` takes it."""
        return f"s3://{BUCKET}/{prefix}?endpoint={quote(self.endpoint, safe='')}&region=us-east-1"

    @property
    def environment(self) -> dict[str, str]:
        """What a node needs besides."""
        return CREDENTIALS

    def start(self) -> None:
        command = [str(PROGRAM), "server", f"-dir={self._directory / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        command += ["-filer", "-s3", f"-s3.config={self._directory / 's3.json'}", "-s3.port.iceberg=0"]
        command += ["-s3.port.lance=0", "-master.telemetry=false", "-volume.preStopSeconds=0", "-volume.max=32"]
        command += ["-master.volumeSizeLimitMB=256", f"-filer.localSocket={self._directory / 'filer.sock'}"]
        command += [f"-s3.localSocket={self._directory / 's3.sock'}"]
        command += [f"-{name}={port}" for name, port in self._ports.items()]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._directory, start_new_session=True
            )
        try:
            self._wait_ready()
        except BaseException:  # no process may outlive the test, whatever ended it
            self.kill()
            raise

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_S_MAX
        while not (self._asked("PUT", BUCKET) and self._asked("PUT", f"{BUCKET}/ready", b"1")):
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self.log_path.read_text(errors="replace").splitlines()[-15:])
                raise RuntimeError(f"the S3 server does not answer: {tail}")
            time.sleep(0.05)
        self._asked("DELETE", f"{BUCKET}/ready")

    def _asked(self, method: str, path: str, body: bytes | None = None) -> bool:
        request = urllib.request.Request(f"{self.endpoint}/{path}", data=body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=5):
                return True
        except urllib.error.HTTPError as error:
            with error:
                return error.code == 409  # the bucket is there
        except OSError:
            return False

    @property
    def log_path(self) -> Path:
        return self._directory / "s3.log"

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
