// A member of a group, as python_member.py tells: `TOPIC SETTINGS-AS-JSON`, settings by part of kafkajs's interface.
const { Kafka, logLevel } = require('kafkajs')

const [topic, given] = process.argv.slice(2)
const settings = JSON.parse(given)
const tell = (...words) => process.stdout.write(words.join(' ') + '\n')

async function main() {
  const common = { logLevel: logLevel.NOTHING, connectionTimeout: 30000 }
  const consumer = new Kafka({ ...settings.client, ...common }).consumer(settings.consumer)
  consumer.on(consumer.events.REBALANCING, () => tell('owns', ''))
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    tell('rebalanced')
    tell('owns', (payload.memberAssignment[topic] || []).slice().sort().join(','))
  })
  consumer.on(consumer.events.CRASH, ({ payload }) => process.stderr.write(`${payload.error.stack}\n`))
  process.once('SIGTERM', async () => {
    await consumer.disconnect()
    tell('left')
    process.exit(0)
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommitInterval: settings.commitIntervalMs,
    eachMessage: async ({ partition, message }) => tell('read', partition, message.offset, message.value),
  })
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
