"""The proxy in front of the object store: what it lets through is whole, what it breaks is said."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest

from tests.chaos.store_proxy import MAX_REFUSALS, StoreFault, StoreProxy
from tests.fakes.tiny_http import Answer, Request, TinyHttp

BODY = b"x" * 300_000


class Store:
    """Keeps what is put into it."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.http = TinyHttp(self._answer)

    def _answer(self, request: Request) -> Answer:
        if request.method == "PUT":
            self.kept[request.path] = request.body
            return Answer(200)
        return Answer(200, self.kept[request.path], "application/octet-stream")


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    made.http.start()
    yield made
    made.http.stop()


@pytest.fixture
async def proxy(store: Store) -> AsyncIterator[StoreProxy]:
    made = StoreProxy(int(store.http.url.rpartition(":")[2]))
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def client(proxy: StoreProxy) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{proxy.port}", timeout=20) as made:
        yield made


async def test_what_is_not_hurt_passes_whole_one_request_after_the_other(
    proxy: StoreProxy, client: httpx2.AsyncClient
):
    for n in range(3):
        assert (await client.put(f"/{n}", content=BODY)).status_code == 200
        assert (await client.get(f"/{n}")).content == BODY
    assert proxy.happened == {}


@pytest.mark.parametrize(("kind", "status"), [("error", 503), ("refuse", 403)])
async def test_a_refused_request_never_reaches_the_store(
    proxy: StoreProxy, client: httpx2.AsyncClient, store: Store, kind: StoreFault, status: int
):
    proxy.order_fault(kind)
    assert (await client.put("/a", content=BODY)).status_code == status
    assert store.kept == {}
    assert (await client.put("/a", content=BODY)).status_code == 200
    assert proxy.happened == {f"store {kind}": 1}


async def test_one_object_is_not_refused_so_often_that_its_worker_gives_up(
    proxy: StoreProxy, client: httpx2.AsyncClient
):
    for _ in range(MAX_REFUSALS + 1):
        proxy.order_fault("refuse")
    answers = [await client.put("/a?X-Amz-Date=1", content=b"1") for _ in range(MAX_REFUSALS + 1)]
    assert [one.status_code for one in answers] == [403] * MAX_REFUSALS + [200]
    assert (await client.put("/b", content=b"1")).status_code == 403


async def test_half_an_upload_is_cut_and_a_lost_answer_comes_after_the_deed(
    proxy: StoreProxy, client: httpx2.AsyncClient, store: Store
):
    proxy.order_fault("half")
    with pytest.raises(httpx2.TransportError):
        await client.put("/half", content=BODY)
    proxy.order_fault("mute")
    with pytest.raises(httpx2.TransportError):
        await client.put("/mute", content=BODY)
    assert store.kept.pop("/mute") == BODY
    assert len(store.kept.get("/half", b"")) < len(BODY)


async def test_a_slow_store_is_slow_once(proxy: StoreProxy, client: httpx2.AsyncClient):
    proxy.order_fault("slow", seconds=0.5)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await client.put("/a", content=BODY)).status_code == 200
    assert loop.time() - began >= 0.5
