// What a client may do: `TOPIC CLIENTS-AS-JSON`, the properties of kafkajs by a client's name. Each client produces,
// consumes in a group, commits a transaction and administers; a line tells what came of each, done or the error.
const { Kafka, logLevel } = require('kafkajs')

const [topic, given] = process.argv.slice(2)
const PATIENCE_MS = 90000

const named = (error) => {
  const cause = error.cause || error
  return cause.type || (cause.errors && cause.errors[0].type) || cause.name
}

async function told(name, what, call) {
  let outcome = 'done'
  try {
    await call()
  } catch (error) {
    outcome = named(error)
  }
  process.stdout.write(`${name} ${what}=${outcome}\n`)
}

const used = async (part, call) => {
  await part.connect()
  try {
    await call(part)
  } finally {
    await part.disconnect()
  }
}

async function consume(kafka, group) {
  const consumer = kafka.consumer({ groupId: group, retry: { restartOnFailure: async () => false } })
  await used(consumer, () => new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error('no record came')), PATIENCE_MS)
    const done = (end) => (value) => { clearTimeout(late); end(value) }
    consumer.on(consumer.events.CRASH, ({ payload }) => done(reject)(payload.error))
    consumer.subscribe({ topics: [topic], fromBeginning: true })
      .then(() => consumer.run({ eachMessage: async () => done(resolve)() }))
      .catch(done(reject))
  }))
}

async function transact(kafka, id) {
  const producer = kafka.producer({ transactionalId: id, maxInFlightRequests: 1, idempotent: true })
  await used(producer, async () => {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [{ value: 'in a transaction' }] })
    await transaction.commit()
  })
}

async function client(name, settings) {
  const { token } = settings.sasl || {}
  if (token) {
    settings.sasl.oauthBearerProvider = async () => ({ value: token })
  }
  const kafka = new Kafka({ logLevel: logLevel.NOTHING, connectionTimeout: PATIENCE_MS, ...settings })
  const messages = [{ value: 'value' }]
  const topics = [{ topic: `${topic}-of-${name}`, numPartitions: 1 }]
  const all = { resourceType: 1, resourcePatternType: 1, operation: 1, permissionType: 1 }
  const produce = (producer) => producer.send({ topic, messages })
  await told(name, 'produce', () => used(kafka.producer(), produce))
  await told(name, 'consume', () => consume(kafka, `${name}-js`))
  await told(name, 'transact', () => transact(kafka, `${name}-js`))
  await told(name, 'create-topic', () => used(kafka.admin(), (admin) => admin.createTopics({ topics })))
  await told(name, 'describe-acls', () => used(kafka.admin(), (admin) => admin.describeAcls(all)))
}

Promise.all(Object.entries(JSON.parse(given)).map(([name, settings]) => client(name, settings)))
  .then(() => process.exit(0))
  .catch((error) => {
    process.stderr.write(`${error.stack}\n`)
    process.exit(1)
  })
