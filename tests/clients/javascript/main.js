'use strict'
// kafkajs: Produce 7, Fetch 11 as read_committed, no look at minimum versions.
// Called as `main.js <bootstrap> <topic prefix> <feature>=<timeout in ms> ...`; one line of JSON each.

const assert = require('node:assert')
const { ConfigResourceTypes } = require('kafkajs')
const { CompressionTypes, openKafka, readPartition } = require('./clients')

const [bootstrap, prefix, ...wanted] = process.argv.slice(2)
const kafka = openKafka(bootstrap)
const topicOf = name => `${prefix}-${name}`
const texts = (stem, count) => Array.from({ length: count }, (_, i) => `${stem} ${i} `.repeat(10))
const valuesOf = messages => messages.map(m => m.value && m.value.toString())

async function withAdmin(use) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

async function newTopic(name, numPartitions = 1, configEntries = []) {
  const topic = topicOf(name)
  await withAdmin(async admin => {
    await admin.createTopics({ topics: [{ topic, numPartitions, configEntries }], waitForLeaders: true })
    // Kafka names a leader a moment before that leader knows it.
    await until(() => admin.fetchTopicOffsets(topic).then(() => true, () => false))
  })
  return topic
}

async function send(topic, messages, settings = {}, compression = CompressionTypes.None) {
  const producer = kafka.producer({ allowAutoTopicCreation: false, ...settings })
  await producer.connect()
  try {
    return await producer.send({ topic, messages, compression, acks: -1 })
  } finally {
    await producer.disconnect()
  }
}

const plain = values => values.map(value => ({ value, partition: 0 }))

async function thereAndBack(name, settings, compression) {
  const topic = await newTopic(name)
  const values = texts(name, 300)
  const [answer] = await send(topic, plain(values), settings, compression)
  assert.equal(answer.baseOffset, '0')
  assert.deepEqual(valuesOf(await readPartition(bootstrap, topic, 0, 0, 300)), values)
}

async function until(holds) {
  while (!(await holds())) await new Promise(resolve => setTimeout(resolve, 20))
}

async function configOf(admin, topic, key) {
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
  const { resources } = await admin.describeConfigs({ resources: [resource] })
  return resources[0].configEntries.find(entry => entry.configName === key).configValue
}

const timed = () => Array.from({ length: 20 }, (_, i) => ({ value: 'x', partition: 0, timestamp: String(1000000 + 10 * i) }))

async function readAsMember(topic, expected) {
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  try {
    await consumer.subscribe({ topic, fromBeginning: true })
    const seen = []
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error))
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ message, partition }) => {
          seen.push(message.value.toString())
          if (seen.length === expected.length) {
            await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
            resolve()
          }
        },
      }).catch(reject)
    })
    assert.deepEqual(seen, expected)
  } finally {
    await consumer.disconnect()
  }
}

async function committed(admin, groupId, topic) {
  const [found] = await admin.fetchOffsets({ groupId, topics: [topic] })
  return found.partitions[0].offset
}

async function withTransactions(name, use) {
  const producer = kafka.producer({ transactionalId: topicOf(name), idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  try {
    return await use(producer)
  } finally {
    await producer.disconnect()
  }
}

const features = {
  connect: () => withAdmin(async admin => {
    const { brokers } = await admin.describeCluster()
    assert.deepEqual(brokers.map(b => `${b.host}:${b.port}`), [bootstrap])
  }),
  'create-topic': async () => {
    const topic = await newTopic('create', 3, [{ name: 'retention.ms', value: '99999' }])
    await withAdmin(async admin => {
      assert((await admin.listTopics()).includes(topic))
      assert.equal(await admin.createTopics({ topics: [{ topic }] }), false, 'a topic was created twice')
    })
  },
  'describe-topic': async () => {
    const topic = await newTopic('describe', 3)
    const { topics } = await withAdmin(admin => admin.fetchTopicMetadata({ topics: [topic] }))
    const found = topics[0].partitions.sort((a, b) => a.partitionId - b.partitionId)
    assert.deepEqual(found.map(p => p.partitionId), [0, 1, 2])
    for (const p of found) assert.deepEqual([p.replicas, p.isr], [[p.leader], [p.leader]])
  },
  'codec-none': () => thereAndBack('codec-none', {}, CompressionTypes.None),
  'codec-gzip': () => thereAndBack('codec-gzip', {}, CompressionTypes.GZIP),
  'codec-snappy': () => thereAndBack('codec-snappy', {}, CompressionTypes.Snappy),
  'codec-lz4': () => thereAndBack('codec-lz4', {}, CompressionTypes.LZ4),
  'codec-zstd': () => thereAndBack('codec-zstd', {}, CompressionTypes.ZSTD),
  idempotence: () => thereAndBack('idempotence', { idempotent: true, maxInFlightRequests: 1 }),
  headers: async () => {
    const topic = await newTopic('headers')
    await send(topic, [
      { partition: 0, key: 'key', value: 'value', headers: { a: ['1', '2'], b: '' } },
      { partition: 0, key: 'tombstone', value: null },
    ])
    const [first, second] = await readPartition(bootstrap, topic, 0, 0, 2)
    assert.deepEqual([first.key.toString(), first.headers.a.map(String), String(first.headers.b)], ['key', ['1', '2'], ''])
    assert.deepEqual([second.key.toString(), second.value], ['tombstone', null])
  },
  timestamps: async () => {
    const topic = await newTopic('timestamps')
    await send(topic, timed())
    assert.equal((await readPartition(bootstrap, topic, 0, 0, 20))[7].timestamp, '1000070')
  },
  'offsets-for-times': async () => {
    const topic = await newTopic('times')
    await send(topic, timed())
    const found = await withAdmin(admin => admin.fetchTopicOffsetsByTimestamp(topic, 1000055))
    assert.deepEqual(found, [{ partition: 0, offset: '6' }])
  },
  'list-offsets': async () => {
    const topic = await newTopic('offsets')
    await send(topic, timed())
    const [found] = await withAdmin(admin => admin.fetchTopicOffsets(topic))
    assert.deepEqual([found.low, found.high], ['0', '20'])
  },
  'describe-configs': async () => {
    const topic = await newTopic('describe-configs', 1, [{ name: 'retention.ms', value: '99999' }])
    await withAdmin(async admin => {
      assert.equal(await configOf(admin, topic, 'retention.ms'), '99999')
      assert.equal(await configOf(admin, topic, 'cleanup.policy'), 'delete')
    })
  },
  'alter-configs': async () => {
    const topic = await newTopic('alter-configs')
    const change = { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'retention.ms', value: '77777' }] }
    await withAdmin(async admin => {
      await admin.alterConfigs({ resources: [change] })
      await until(async () => (await configOf(admin, topic, 'retention.ms')) === '77777')
    })
  },
  'create-partitions': async () => {
    const topic = await newTopic('create-partitions')
    await withAdmin(async admin => {
      await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
      await until(async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length === 3)
    })
  },
  'delete-records': async () => {
    const topic = await newTopic('delete-records')
    await send(topic, timed())
    await withAdmin(async admin => {
      // It deletes only from topics whose metadata it has already read.
      await admin.fetchTopicOffsets(topic)
      await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '7' }] })
      assert.equal((await admin.fetchTopicOffsets(topic))[0].low, '7')
    })
  },
  'delete-topic': async () => {
    const topic = await newTopic('delete')
    await withAdmin(async admin => {
      await admin.deleteTopics({ topics: [topic] })
      await until(async () => !(await admin.listTopics()).includes(topic))
    })
  },
  group: async () => {
    const topic = await newTopic('group')
    await send(topic, plain(['0', '1', '2', '3', '4']))
    await readAsMember(topic, ['0', '1', '2', '3', '4'])
    await send(topic, plain(['5']))
    await readAsMember(topic, ['5'])
    assert.equal(await withAdmin(admin => committed(admin, topic, topic)), '6')
  },
  transaction: async () => {
    const topic = await newTopic('transaction')
    await withTransactions('transaction', async producer => {
      for (const value of ['kept', 'lost', 'last']) {
        const transaction = await producer.transaction()
        await transaction.send({ topic, messages: plain([value, value, value]) })
        await (value === 'lost' ? transaction.abort() : transaction.commit())
      }
    })
    // Only its consumer, a member of a group, leaves out what was aborted.
    await readAsMember(topic, ['kept', 'kept', 'kept', 'last', 'last', 'last'])
  },
  'transaction-offsets': async () => {
    const topic = await newTopic('transaction-offsets')
    await withTransactions('transaction-offsets', async producer => {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: plain(['0', '1', '2']) })
      const topics = [{ topic, partitions: [{ partition: 0, offset: '3' }] }]
      await transaction.sendOffsets({ consumerGroupId: topic, topics })
      await transaction.commit()
    })
    await withAdmin(admin => until(async () => (await committed(admin, topic, topic)) === '3'))
  },
}

function within(promise, timeoutMs) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${timeoutMs} ms`)), timeoutMs)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

async function main() {
  console.log(JSON.stringify({ client: 'kafkajs', version: require('kafkajs/package.json').version }))
  for (const argument of wanted) {
    const [feature, timeoutMs] = argument.split('=')
    const line = { feature, result: 'ok' }
    try {
      if (features[feature]) await within(features[feature](), Number(timeoutMs))
      else line.result = 'absent'
    } catch (error) {
      Object.assign(line, { result: 'failed', note: String(error.message || error).slice(0, 600) })
    }
    console.log(JSON.stringify(line))
  }
  process.exit(0)
}

// A feature that was given up may still fail later.
process.on('unhandledRejection', () => {})
main()
