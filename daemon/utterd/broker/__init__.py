"""RabbitMQ: what comes in, what goes out, and the topology in between."""
