// kafkajs as a line program: node interop.js NODE_MODULES BOOTSTRAP, then tab-separated commands on stdin.
const [modules, bootstrap] = process.argv.slice(2)
const load = name => require(`${modules}/${name}`)
const fs = require('fs')
const readline = require('readline')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = load('kafkajs')

// Only producing is shown with kafkajs, so no codec needs its other half.
const senderOnly = compress => () => ({ compress, decompress: () => { throw new Error('not used') } })

// lz4js does not say in the frame's flags that its blocks are independent, which Kafka's readers insist on; a batch is
// smaller than one block, so it is true.
function independentBlocks (frame) {
  const flags = frame.subarray(4, 6)
  flags[0] |= 0x20
  frame[6] = (load('lz4js/xxh32').hash(0, flags, 0, 2) >>> 8) & 0xff
  return Buffer.from(frame)
}

CompressionCodecs[CompressionTypes.Snappy] = load('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = senderOnly(async encoder => independentBlocks(load('lz4js').compress(encoder.buffer)))
CompressionCodecs[CompressionTypes.ZSTD] = senderOnly(encoder => new Promise(resolve =>
  load('zstd-codec').ZstdCodec.run(zstd => resolve(Buffer.from(new zstd.Simple().compress(encoder.buffer))))))

const COMPRESSION = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const MESSAGES_PER_SEND = 5000
const kafka = new Kafka({ clientId: 'interop', brokers: bootstrap.split(','), logLevel: logLevel.ERROR })
const admin = kafka.admin()

async function produce (topic, partitions, path, codec, idempotent) {
  const lines = fs.readFileSync(path, 'latin1').split('\n')
  const producer = kafka.producer({ idempotent: idempotent === 'true' })
  await producer.connect()
  try {
    for (let at = 0; at < lines.length; at += MESSAGES_PER_SEND) {
      const messages = lines.slice(at, at + MESSAGES_PER_SEND)
        .map((value, index) => ({ value, partition: (at + index) % Number(partitions) }))
      await producer.send({ topic, messages, compression: COMPRESSION[codec], acks: -1 })
    }
  } finally {
    await producer.disconnect()
  }
  return [lines.length]
}

async function offsets (topic, timestamp) {
  const byPartition = (a, b) => a.partition - b.partition
  const found = (await admin.fetchTopicOffsetsByTimestamp(topic, Number(timestamp))).sort(byPartition)
  const ends = (await admin.fetchTopicOffsets(topic)).sort(byPartition)
  return [found.map(p => p.offset).join(','), ends.map(p => p.high).join(',')]
}

async function create (topic, partitions, copies, ...configs) {
  const configEntries = configs.map(word => ({ name: word.split('=')[0], value: word.split('=')[1] }))
  const made = await admin.createTopics({
    waitForLeaders: true,
    topics: [{ topic, numPartitions: Number(partitions), replicationFactor: Number(copies), configEntries }],
  })
  if (!made) throw new Error('topic exists already')
  return []
}

async function remove (topic) {
  await admin.deleteTopics({ topics: [topic] })
  return []
}

const COMMANDS = { produce, offsets, create, delete: remove }

async function main () {
  await admin.connect()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split('\t')
    try {
      console.log(['ok', ...await COMMANDS[command](...words)].join('\t'))
    } catch (error) {
      console.log(`error\t${String(error.message).replace(/\s/g, ' ')}`)
    }
  }
  await admin.disconnect()
}

main()
