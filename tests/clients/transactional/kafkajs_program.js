// A program with transactions, as python_program.py tells: `commands SETTINGS` or `process SETTINGS`. kafkajs takes its
// transactional id with its first transaction, so that `init` only connects.
const readline = require('readline')
const { Kafka, logLevel } = require('kafkajs')

const [mode, given] = process.argv.slice(2)
const settings = JSON.parse(given)
const tell = (...words) => process.stdout.write(words.join(' ') + '\n')
const kafka = new Kafka({
  brokers: settings.bootstrap.split(','),
  logLevel: logLevel.NOTHING,
  connectionTimeout: 30000, // instead of the second that a broker on a busy machine may need
  retry: { initialRetryTime: 100, retries: 8 },
})
const producer = kafka.producer({
  transactionalId: settings.transactional_id,
  transactionTimeout: settings.transaction_timeout_ms,
  maxInFlightRequests: 1,
  idempotent: true,
})

async function commands() {
  let transaction
  const actions = {
    init: () => producer.connect(),
    begin: async () => { transaction = await producer.transaction() },
    send: (topic, partition, value) =>
      transaction.send({ topic, messages: [{ partition: Number(partition), value }] }),
    commit: () => transaction.commit(),
    abort: () => transaction.abort(),
  }
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(' ')
    try {
      await actions[command](...words)
      tell('done')
    } catch (error) {
      tell('failed', error.type || error.name)
    }
  }
  process.exit(0)
}

async function run() {
  const consumer = kafka.consumer({
    groupId: settings.group,
    sessionTimeout: settings.session_timeout_ms,
    heartbeatInterval: settings.session_timeout_ms / 10,
    maxWaitTimeInMs: 200,
    readUncommitted: false,
  })
  const end = async (code) => {
    setTimeout(() => process.exit(code), 3_000) // a consumer that crashed may not come to an end of its own
    await consumer.disconnect().catch((error) => process.stderr.write(`${error.stack}\n`))
    process.exit(code)
  }
  process.once('SIGTERM', () => end(0))
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    process.stderr.write(`${payload.error.stack}\n`)
    end(3)
  })
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: [settings.input], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, isRunning, isStale }) => {
      if (!isRunning() || isStale()) return
      const transaction = await producer.transaction()
      try {
        const messages = batch.messages.map(({ value }) => ({ value, partition: batch.partition }))
        await transaction.send({ topic: settings.output, messages })
        const offset = (BigInt(batch.lastOffset()) + 1n).toString()
        const partitions = [{ partition: batch.partition, offset }]
        await transaction.sendOffsets({ consumerGroupId: settings.group, topics: [{ topic: batch.topic, partitions }] })
        await transaction.commit()
        resolveOffset(batch.lastOffset())
        tell('committed', messages.length)
      } catch (error) {
        process.stderr.write(`${error.stack}\n`)
        await end(3)
      }
    },
  })
}

(mode === 'commands' ? commands() : run()).catch((error) => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(3)
})
