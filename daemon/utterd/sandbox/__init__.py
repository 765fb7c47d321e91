"""A private RabbitMQ node and S3 server for newcomers, tests and benchmarks."""

from utterd.sandbox.command import run_sandbox
from utterd.sandbox.rabbitmq import RabbitNode
from utterd.sandbox.s3 import S3Server
from utterd.sandbox.sandbox import Sandbox

__all__ = ["RabbitNode", "S3Server", "Sandbox", "run_sandbox"]
