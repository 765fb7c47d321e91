"""Writes the contract for other languages: JSON Schema files and an AsyncAPI document.

python -m utterd_schemas.export DIRECTORY
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from utterd_schemas.errors import ErrorInfo
from utterd_schemas.events import CONTENT_TYPE, EVENT_DATA, HEADER_PREFIX, EventData, EventType
from utterd_schemas.job import SCHEMA_VERSION, Job

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Document = dict[str, Any]


def json_schema(model: type[BaseModel], name: str) -> Document:
    """One model as a JSON Schema 2020-12 document with a versioned `$id`."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": DIALECT, "$id": f"urn:utterd:schema:{name}:v{SCHEMA_VERSION}", **schema}


def json_schemas() -> dict[str, Document]:
    """Every published schema by its name."""
    events = {
        f"{data.type.outcome}-event": json_schema(data, f"{data.type.outcome}-event")
        for data in EVENT_DATA
    }
    return {"job": json_schema(Job, "job"), "error": json_schema(ErrorInfo, "error"), **events}


def _event_headers(event_type: EventType) -> Document:
    attributes = {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "format": "uuid"},
        "source": {"type": "string", "format": "uri-reference"},
        "type": {"const": str(event_type)},
        "subject": {"type": "string", "description": "The job's id."},
        "time": {"type": "string", "format": "date-time"},
    }
    return {
        "type": "object",
        "required": [HEADER_PREFIX + name for name in attributes],
        "properties": {HEADER_PREFIX + name: schema for name, schema in attributes.items()},
    }


def _event_message(data: type[EventData]) -> Document:
    return {
        "name": str(data.type),
        "title": (data.__doc__ or "").strip().splitlines()[0],
        "contentType": CONTENT_TYPE,
        "headers": _event_headers(data.type),
        "payload": {"$ref": f"json/{data.type.outcome}-event.json"},
        "bindings": {"amqp": {"messageType": str(data.type)}},
    }


def _channel(
    exchange: str, routing_key: str, parameter: Document, messages: Document, description: str
) -> Document:
    """A channel is an exchange and a routing key with one parameter in braces."""
    return {
        "address": routing_key,
        "description": description,
        "parameters": parameter,
        "messages": messages,
        "bindings": {
            "amqp": {
                "is": "routingKey",
                "exchange": {"name": exchange, "type": "topic", "durable": True},
            }
        },
    }


def asyncapi(version: str) -> Document:
    """The AsyncAPI 3.0 document, seen from the daemon: it receives jobs and sends events."""
    outcomes = {data.type.outcome: data for data in EVENT_DATA}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "utterd",
            "version": version,
            "description": "Speech-synthesis jobs in, audio in a bucket, events out.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "channels": {
            "jobs": _channel(
                "tts.jobs",
                "synthesize.{lane}",
                {"lane": {"enum": ["interactive", "batch"]}},
                {"job": {"$ref": "#/components/messages/job"}},
                "Jobs; those of the interactive lane go first.",
            ),
            "events": _channel(
                "tts.events",
                "synthesis.{outcome}",
                {"outcome": {"enum": list(outcomes)}},
                {name: {"$ref": f"#/components/messages/{name}"} for name in outcomes},
                "Events, in CloudEvents binary mode.",
            ),
        },
        "operations": {
            "receiveJob": {
                "action": "receive",
                "channel": {"$ref": "#/channels/jobs"},
                "messages": [{"$ref": "#/channels/jobs/messages/job"}],
            },
            "sendEvent": {
                "action": "send",
                "channel": {"$ref": "#/channels/events"},
                "messages": [{"$ref": f"#/channels/events/messages/{name}"} for name in outcomes],
            },
        },
        "components": {
            "messages": {
                "job": {
                    "name": "job",
                    "title": "One request for speech.",
                    "contentType": CONTENT_TYPE,
                    "payload": {"$ref": "json/job.json"},
                },
                **{name: _event_message(data) for name, data in outcomes.items()},
            }
        },
    }


def yaml_lines(value: object, indent: str = "") -> Iterator[str]:
    """JSON-like data as block-style YAML; scalars are written as JSON, which YAML contains."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            name = key if key.isidentifier() else json.dumps(key)
            yield from _yaml_entry(f"{indent}{name}:", item, indent)
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for item in value:
            yield from _yaml_entry(f"{indent}-", item, indent)
    else:
        yield f"{indent}{json.dumps(value, ensure_ascii=False)}"


def _yaml_entry(head: str, item: object, indent: str) -> Iterator[str]:
    if isinstance(item, Mapping | list | tuple) and item:
        yield head
        yield from yaml_lines(item, indent + "  ")
    else:
        yield f"{head} {json.dumps(item, ensure_ascii=False)}"


def documents(version: str) -> dict[str, str]:
    """Every generated file: its path below the target directory, and its text."""
    files = {
        f"json/{name}.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for name, schema in json_schemas().items()
    }
    files["asyncapi.yaml"] = "\n".join(yaml_lines(asyncapi(version))) + "\n"
    return files


def main(directory: Path) -> None:
    for name, text in documents(f"{SCHEMA_VERSION}.0.0").items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
