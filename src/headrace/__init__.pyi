from headrace import aio as aio
from headrace.client import AlreadyApplied as AlreadyApplied
from headrace.client import AlreadyExists as AlreadyExists
from headrace.client import AsyncClient as AsyncClient
from headrace.client import BufferFull as BufferFull
from headrace.client import Client as Client
from headrace.client import ClientClosed as ClientClosed
from headrace.client import Consumer as Consumer
from headrace.client import DataDamaged as DataDamaged
from headrace.client import DataLost as DataLost
from headrace.client import HeadraceError as HeadraceError
from headrace.client import Message as Message
from headrace.client import Messages as Messages
from headrace.client import NotFound as NotFound
from headrace.client import NotOwned as NotOwned
from headrace.client import OffsetsReset as OffsetsReset
from headrace.client import Place as Place
from headrace.client import Producer as Producer
from headrace.client import ProtocolBroken as ProtocolBroken
from headrace.client import RefusedByServer as RefusedByServer
from headrace.client import Sent as Sent
from headrace.client import Unauthenticated as Unauthenticated
from headrace.client import Unauthorized as Unauthorized
from headrace.client import Unavailable as Unavailable
from headrace.client import Unreadable as Unreadable
from headrace.client.sync.client import connect as connect

__version__: str
