'use strict'
// kafkajs with every codec, and a reader of single partitions. kafkajs' consumer reads only as
// a member of a group, so what a test wrote is read back by its broker object: the same Fetch
// request and the same decoder, one layer below.

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const { createLogger } = require('kafkajs/src/loggers')
const LoggerConsole = require('kafkajs/src/loggers/console')
const socketFactory = require('kafkajs/src/network/socketFactory')
const snappy = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const { ZstdCodec } = require('zstd-codec')
const { secured } = require('./security')

const READ_COMMITTED = 1

CompressionCodecs[CompressionTypes.Snappy] = snappy
// Kafka takes only frames of independent blocks, which not every lz4 library makes.
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})

const zstdReady = new Promise(resolve => ZstdCodec.run(zstd => resolve(new zstd.Simple())))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from((await zstdReady).compress(encoder.buffer)),
  decompress: async buffer => Buffer.from((await zstdReady).decompress(buffer)),
})

const settings = bootstrap => ({
  brokers: [bootstrap],
  clientId: 'kafkajs',
  logLevel: logLevel.NOTHING,
  connectionTimeout: 10000,
  retry: { initialRetryTime: 50, retries: 8 },
  // Before its session ends; ten seconds, by default, are more than a session of the tests has.
  reauthenticationThreshold: 500,
  ...secured(),
})

const openKafka = bootstrap => new Kafka(settings(bootstrap))

/** The first `count` messages of a partition from `offset`. */
async function readPartition(bootstrap, topic, partition, offset, count) {
  const cluster = new Cluster({
    ...settings(bootstrap),
    brokers: async () => [bootstrap],
    logger: createLogger({ level: logLevel.NOTHING, logCreator: LoggerConsole }),
    socketFactory: socketFactory(),
    metadataMaxAge: 300000,
    allowAutoTopicCreation: false,
    isolationLevel: READ_COMMITTED,
  })
  await cluster.connect()
  try {
    await cluster.addTargetTopic(topic)
    const [{ leader }] = cluster.findTopicPartitionMetadata(topic).filter(p => p.partitionId === partition)
    const broker = await cluster.findBroker({ nodeId: leader })
    const messages = []
    while (messages.length < count) {
      const next = messages.length ? Number(messages[messages.length - 1].offset) + 1 : offset
      const { responses } = await broker.fetch({
        isolationLevel: READ_COMMITTED,
        maxWaitTime: 500,
        topics: [{ topic, partitions: [{ partition, fetchOffset: String(next), maxBytes: 1048576 }] }],
      })
      const fetched = responses[0].partitions[0].messages
      messages.push(...fetched.filter(m => Number(m.offset) >= next && !m.isControlRecord))
    }
    return messages
  } finally {
    await cluster.disconnect()
  }
}

module.exports = { CompressionTypes, openKafka, readPartition }
