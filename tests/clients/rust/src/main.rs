//! rskafka: a small client that knows partitions but neither groups, transactions nor configs.
//!
//! Called as `features <bootstrap> <topic prefix> <feature>=<timeout in ms> ...`; prints one line
//! of JSON per feature.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use chrono::{DateTime, Utc};
use rskafka::client::error::ProtocolError;
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};

type Failure = Box<dyn Error + Send + Sync>;
type Outcome = Result<bool, Failure>;
const VERSION: &str = "0.6.0";
const REQUEST_TIMEOUT_MS: i32 = 10_000;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    println!("{{\"client\": \"rskafka\", \"version\": \"{VERSION}\"}}");
    for argument in &arguments[3..] {
        let (name, millis) = argument.split_once('=').expect("feature=timeout");
        let timeout = Duration::from_millis(millis.parse().expect("a number of ms"));
        let run = Run {
            bootstrap: arguments[1].clone(),
            prefix: arguments[2].clone(),
        };
        let (result, note) = match tokio::time::timeout(timeout, run.attempt(name)).await {
            Ok(Ok(true)) => ("ok", String::new()),
            Ok(Ok(false)) => ("absent", String::new()),
            Ok(Err(error)) => ("failed", error.to_string()),
            Err(_) => ("failed", format!("no end after {millis} ms")),
        };
        let note = note.replace(['"', '\\', '\n'], " ");
        println!("{{\"feature\": \"{name}\", \"result\": \"{result}\", \"note\": \"{note}\"}}");
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<(), Failure> {
    if got == wanted {
        return Ok(());
    }
    Err(format!("{what}: got {got:?}, expected {wanted:?}")
        .chars()
        .take(600)
        .collect::<String>()
        .into())
}

fn time_ms(millis: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(millis).expect("a time")
}

fn record(value: &str, at_ms: i64) -> Record {
    Record {
        key: None,
        value: Some(value.into()),
        headers: BTreeMap::new(),
        timestamp: time_ms(at_ms),
    }
}

fn values(records: &[RecordAndOffset]) -> Vec<String> {
    let text =
        |r: &RecordAndOffset| String::from_utf8_lossy(r.record.value.as_deref().unwrap_or_default()).into();
    records.iter().map(text).collect()
}

struct Run {
    bootstrap: String,
    prefix: String,
}

impl Run {
    /// True if the feature works, false if the client has no such thing.
    async fn attempt(&self, name: &str) -> Outcome {
        match name {
            "connect" => self.connect().await?,
            "create-topic" => self.create_topic().await?,
            "describe-topic" => self.describe_topic().await?,
            "codec-none" => self.codec(name, Compression::NoCompression).await?,
            "codec-gzip" => self.codec(name, Compression::Gzip).await?,
            "codec-snappy" => self.codec(name, Compression::Snappy).await?,
            "codec-lz4" => self.codec(name, Compression::Lz4).await?,
            "codec-zstd" => self.codec(name, Compression::Zstd).await?,
            "assign" => self.assign().await?,
            "headers" => self.headers().await?,
            "timestamps" => self.timestamps().await?,
            "offsets-for-times" => self.offsets_for_times().await?,
            "list-offsets" => self.list_offsets().await?,
            "delete-records" => self.delete_records().await?,
            "delete-topic" => self.delete_topic().await?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn client(&self) -> Result<Client, Failure> {
        Ok(ClientBuilder::new(vec![self.bootstrap.clone()]).build().await?)
    }

    async fn new_topic(&self, name: &str, partitions: i32) -> Result<(Client, String), Failure> {
        let client = self.client().await?;
        let topic = format!("{}-{name}", self.prefix);
        client
            .controller_client()?
            .create_topic(&topic, partitions, 1, REQUEST_TIMEOUT_MS)
            .await?;
        Ok((client, topic))
    }

    async fn partition(&self, name: &str) -> Result<PartitionClient, Failure> {
        let (client, topic) = self.new_topic(name, 1).await?;
        Ok(client
            .partition_client(topic, 0, UnknownTopicHandling::Retry)
            .await?)
    }

    async fn read(
        &self,
        partition: &PartitionClient,
        start: i64,
        count: usize,
    ) -> Result<Vec<RecordAndOffset>, Failure> {
        let mut records: Vec<RecordAndOffset> = Vec::new();
        while records.len() < count {
            let next = records.last().map_or(start, |r| r.offset + 1);
            records.extend(partition.fetch_records(next, 1..1_000_000, 500).await?.0);
        }
        Ok(records)
    }

    async fn connect(&self) -> Result<(), Failure> {
        self.client().await?.list_topics().await?;
        Ok(())
    }

    async fn create_topic(&self) -> Result<(), Failure> {
        let (client, topic) = self.new_topic("create", 3).await?;
        match client
            .controller_client()?
            .create_topic(&topic, 3, 1, REQUEST_TIMEOUT_MS)
            .await
        {
            Err(rskafka::client::error::Error::ServerError {
                protocol_error: ProtocolError::TopicAlreadyExists,
                ..
            }) => Ok(()),
            other => Err(format!("creating twice: {other:?}").into()),
        }
    }

    async fn describe_topic(&self) -> Result<(), Failure> {
        let (client, topic) = self.new_topic("describe", 3).await?;
        loop {
            let found = client.list_topics().await?.into_iter().find(|t| t.name == topic);
            if let Some(found) = found.filter(|t| t.partitions.len() == 3) {
                return expect(
                    "partitions",
                    found.partitions.into_iter().collect(),
                    vec![0, 1, 2],
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn codec(&self, name: &str, compression: Compression) -> Result<(), Failure> {
        let partition = self.partition(name).await?;
        let sent: Vec<String> = (0..300).map(|i| format!("{name} {i} ").repeat(10)).collect();
        let records = sent.iter().map(|text| record(text, 1_000_000)).collect();
        let offsets = partition.produce(records, compression).await?;
        expect("offsets", offsets, (0..300).collect())?;
        expect("values", values(&self.read(&partition, 0, 300).await?), sent)
    }

    async fn assign(&self) -> Result<(), Failure> {
        let (client, topic) = self.new_topic("assign", 3).await?;
        for (index, wanted) in [(0, ["6", "9", "12"]), (2, ["8", "11", "14"])] {
            let partition = client
                .partition_client(&topic, index, UnknownTopicHandling::Retry)
                .await?;
            let sent = (0..5)
                .map(|i| record(&(3 * i + index).to_string(), 1_000_000))
                .collect();
            partition.produce(sent, Compression::NoCompression).await?;
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            expect("values", values(&self.read(&partition, 2, 3).await?), wanted)?;
        }
        Ok(())
    }

    async fn headers(&self) -> Result<(), Failure> {
        let partition = self.partition("headers").await?;
        let mut first = record("value", 1_000_000);
        first.key = Some(b"key".to_vec());
        first.headers = BTreeMap::from([("a".to_owned(), b"1".to_vec()), ("b".to_owned(), Vec::new())]);
        let mut second = record("", 1_000_000);
        second.key = Some(b"tombstone".to_vec());
        second.value = None;
        partition
            .produce(vec![first.clone(), second.clone()], Compression::NoCompression)
            .await?;
        let read = self.read(&partition, 0, 2).await?;
        expect(
            "records",
            read.into_iter().map(|r| r.record).collect(),
            vec![first, second],
        )
    }

    async fn timed(&self, name: &str) -> Result<PartitionClient, Failure> {
        let partition = self.partition(name).await?;
        let sent = (0..20).map(|i| record("x", 1_000_000 + 10 * i)).collect();
        partition.produce(sent, Compression::NoCompression).await?;
        Ok(partition)
    }

    async fn timestamps(&self) -> Result<(), Failure> {
        let partition = self.timed("timestamps").await?;
        let read = self.read(&partition, 0, 20).await?;
        expect("timestamp", read[7].record.timestamp, time_ms(1_000_070))
    }

    async fn offsets_for_times(&self) -> Result<(), Failure> {
        let partition = self.timed("times").await?;
        expect(
            "offset",
            partition
                .get_offset(OffsetAt::Timestamp(time_ms(1_000_055)))
                .await?,
            6,
        )
    }

    async fn list_offsets(&self) -> Result<(), Failure> {
        let partition = self.timed("offsets").await?;
        expect("earliest", partition.get_offset(OffsetAt::Earliest).await?, 0)?;
        expect("latest", partition.get_offset(OffsetAt::Latest).await?, 20)
    }

    async fn delete_records(&self) -> Result<(), Failure> {
        let partition = self.timed("delete-records").await?;
        partition.delete_records(7, REQUEST_TIMEOUT_MS).await?;
        expect("start", partition.get_offset(OffsetAt::Earliest).await?, 7)
    }

    async fn delete_topic(&self) -> Result<(), Failure> {
        let (client, topic) = self.new_topic("delete", 1).await?;
        client
            .controller_client()?
            .delete_topic(&topic, REQUEST_TIMEOUT_MS)
            .await?;
        while client.list_topics().await?.iter().any(|t| t.name == topic) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}
