// A member of a group by kafkajs: node kafkajs.js NODE_MODULES BOOTSTRAP GROUP TOPIC
const [modules, bootstrap, groupId, topic] = process.argv.slice(2)
const { Kafka, logLevel } = require(`${modules}/kafkajs`)

const tell = document => process.stdout.write(JSON.stringify(document) + '\n')
const kafka = new Kafka({ clientId: 'kafkajs', brokers: bootstrap.split(','), logLevel: logLevel.ERROR })
const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 1000, rebalanceTimeout: 10000 })

consumer.on(consumer.events.GROUP_JOIN, event => tell({ assigned: event.payload.memberAssignment[topic] || [] }))
consumer.on(consumer.events.REBALANCING, () => tell({ assigned: [] }))

async function main () {
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommitInterval: 500,
    eachBatch: async ({ batch, resolveOffset, heartbeat, commitOffsetsIfNecessary }) => {
      tell({ read: batch.messages.map(message => Number(message.value)) })
      resolveOffset(batch.lastOffset())
      await commitOffsetsIfNecessary()
      await heartbeat()
    },
  })
}

process.stdin.on('end', async () => { await consumer.disconnect(); process.exit(0) }).resume()
main().catch(error => { console.error(error); process.exit(1) })
