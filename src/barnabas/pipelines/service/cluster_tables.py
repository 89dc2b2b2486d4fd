"""Topics of the service's own cluster, with their setting `barnabas.table`."""

from __future__ import annotations

from typing import Final

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import Steps, raise_for
from barnabas.config.definitions.topics import TABLE
from barnabas.core.errors import TopicAuthorizationFailed, UnknownTopicOrPartition
from barnabas.pipelines.service.topic_tables import TopicTable
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

TOPICS_AT_ONCE: Final = 500
"""Topics in a request for their settings."""


class ClusterTables:
    """Implements `topic_tables.Topics`."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def tables(self) -> dict[str, TopicTable]:
        return await self._cluster.run_with_retries(self._steps)

    def _steps(self) -> Steps[dict[str, TopicTable]]:
        state = self._cluster.state
        yield from state.refresh(None)
        topics = {name: topic.topic_id for name, topic in state.topics.items() if not topic.is_internal}
        found: dict[str, TopicTable] = {}
        all_names = list(topics)
        for at in range(0, len(all_names), TOPICS_AT_ONCE):
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=[TABLE]
                    )
                    for name in all_names[at : at + TOPICS_AT_ONCE]
                ]
            )
            answer = yield from state.ask_controller(request, DescribeConfigsResponse)
            for row in answer.results:
                if row.error_code == UnknownTopicOrPartition.code:
                    continue  # deleted meanwhile
                if row.error_code == TopicAuthorizationFailed.code:
                    name = row.resource_name
                    found[name] = TopicTable(topics[name], None, is_known=False)
                    continue
                raise_for(row.error_code, row.error_message, f"topic {row.resource_name}")
                settings = {each.name: each.value for each in row.configs}
                found[row.resource_name] = TopicTable(topics[row.resource_name], settings.get(TABLE))
        return found
