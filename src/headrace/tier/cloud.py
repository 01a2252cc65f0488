"""S3, Google Cloud Storage and Azure, by obstore. Credentials and the like come from the environment, as it reads them.

An object of up to 64 MiB is one conditional request. A larger one goes up in parts, so that memory stays bounded, and
obstore has no condition for such an upload: it is asked first whether the name is taken. That is enough for segments,
since the random bits in their names make two writers of one name the same writer. Parts of an upload that died are
nothing that obstore could list, or end: TIER.md asks for a rule of the bucket that does.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, S3Store
from obstore.store import ObjectStore as Client

from headrace.runtime import Offload
from headrace.storage.files import Files
from headrace.tier.sources import pieces
from headrace.tier.store import (
    ObjectExists,
    ObjectMissing,
    RangeMissing,
    Refused,
    Source,
    SourceUnreadable,
    StoreUnavailable,
    check_key,
    check_prefix,
    source_bytes,
)

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, RetryConfig, S3Config

CONDITIONAL_BYTES_MAX = 64 << 20
PIECE_BYTES = 8 << 20
UPLOADS_AT_ONCE = 3
CONNECT_TIMEOUT = timedelta(seconds=5)
REQUEST_TIMEOUT = timedelta(seconds=60)
RETRIES = 2
RETRY_TIMEOUT = timedelta(seconds=10)
LANE = "tier-write"


class CloudStore:
    def __init__(self, client: Client, name: str, files: Files, offload: Offload) -> None:
        """`name` is how errors call it."""
        self._client = client
        self._name = name
        self._files = files.apart()
        self._offload = offload

    @classmethod
    def open(cls, url: str, options: dict[str, str], files: Files, offload: Offload) -> "CloudStore":
        """`options` are obstore's, beside those in the environment. Raises Refused."""
        try:
            client = _client(url, options)
        except (BaseError, ValueError) as error:
            raise Refused(f"{url} cannot be used as object store: {_first_line(error)}") from error
        return cls(client, url, files, offload)

    async def begin(self) -> None:
        pass

    async def put(self, key: str, parts: Sequence[Source]) -> None:
        check_key(key)
        steps = pieces(self._files, parts, PIECE_BYTES)
        try:
            if sum(map(source_bytes, parts)) <= CONDITIONAL_BYTES_MAX:
                content = await self._offload.run(LANE, lambda: b"".join(steps))
                await obstore.put_async(self._client, key, content, mode="create", use_multipart=False)
            else:
                await self._put_large(key, steps)
        except AlreadyExistsError:
            raise ObjectExists(key) from None
        except (BaseError, OSError, ValueError) as error:
            raise self._unavailable("put", key, error) from error

    async def _put_large(self, key: str, steps: Iterator[bytes]) -> None:
        try:
            await self.size(key)
        except ObjectMissing:
            pass
        else:
            raise ObjectExists(key)
        unreadable: list[SourceUnreadable] = []

        async def read() -> AsyncIterator[bytes]:
            try:
                while piece := await self._offload.run(LANE, lambda: next(steps, b"")):
                    yield piece
            except SourceUnreadable as error:
                unreadable.append(error)  # obstore gives it another type, and takes back what was uploaded
                raise

        try:
            await obstore.put_async(
                self._client,
                key,
                read(),
                use_multipart=True,
                chunk_size=PIECE_BYTES,
                max_concurrency=UPLOADS_AT_ONCE,
            )
        except Exception:  # whatever type it has become
            if unreadable:
                raise unreadable[0] from None
            raise

    async def get(self, key: str, start: int, end: int) -> bytes:
        check_key(key)
        assert 0 <= start < end, (start, end)
        try:
            found = (await obstore.get_range_async(self._client, key, start=start, end=end)).to_bytes()
        except FileNotFoundError:
            raise ObjectMissing(key) from None
        except (BaseError, OSError, ValueError) as error:
            # obstore has no type for the answer to a range that begins beyond the end.
            if "416" in str(error) and await self.size(key) <= start:
                raise RangeMissing(f"{key} ends before byte {start}.") from None
            raise self._unavailable("get", key, error) from error
        if len(found) != end - start:
            raise RangeMissing(f"{key} ends before byte {end}.")
        return found

    async def size(self, key: str) -> int:
        check_key(key)
        try:
            return (await obstore.head_async(self._client, key))["size"]
        except FileNotFoundError:
            raise ObjectMissing(key) from None
        except (BaseError, OSError, ValueError) as error:
            raise self._unavailable("head", key, error) from error

    async def delete(self, key: str) -> None:
        check_key(key)
        try:
            await obstore.delete_async(self._client, key)
        except FileNotFoundError:
            return
        except (BaseError, OSError, ValueError) as error:
            raise self._unavailable("delete", key, error) from error

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        check_prefix(prefix)
        try:
            async for page in obstore.list(self._client, prefix or None):
                for found in page:
                    yield found["path"], found["size"]
        except (BaseError, OSError, ValueError) as error:
            raise self._unavailable("list", prefix, error) from error

    async def close(self) -> None:
        pass

    def _unavailable(self, operation: str, key: str, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(f"{self._name} fails at {operation} of {key}: {_first_line(error)}")


def _client(url: str, options: dict[str, str]) -> Client:
    transport: ClientConfig = {
        "connect_timeout": CONNECT_TIMEOUT,
        "timeout": REQUEST_TIMEOUT,
        "allow_http": options.get("endpoint", "").startswith("http://"),
    }
    retries: RetryConfig = {"max_retries": RETRIES, "retry_timeout": RETRY_TIMEOUT}
    if url.startswith("s3:"):
        s3: S3Config = {}
        if "endpoint" in options:
            s3["endpoint"] = options["endpoint"]
        if "region" in options:
            s3["region"] = options["region"]
        return S3Store.from_url(url, config=s3, client_options=transport, retry_config=retries)
    if url.startswith("az:"):
        azure: AzureConfig = {"endpoint": options["endpoint"]} if "endpoint" in options else {}
        return AzureStore.from_url(url, config=azure, client_options=transport, retry_config=retries)
    assert url.startswith("gs:"), url
    return GCSStore.from_url(url, client_options=transport, retry_config=retries)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].strip()
