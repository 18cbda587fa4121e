// An institution with jspurefix and our published dictionaries, over FIX 4.2 and 4.4: an order and its fill by a book's
// arithmetic, a cancellation in time, a cut with an order on its way, whose fill comes by the numbers after it, a reset,
// a Logout. It ends with 1 when anything is not as agreed. Run by tests/jspurefix/run.
require('reflect-metadata')
const assert = require('node:assert')
const fs = require('node:fs')
const path = require('node:path')
const { AsciiSession, DITokens, JsFixWinstonLogFactory, SessionLauncher, WinstonLogger } = require('jspurefix')
const { RecoveringTcpInitiator } = require('jspurefix/dist/transport/tcp')

const PATIENCE = 60_000
const folder = process.argv[2]
const ready = JSON.parse(fs.readFileSync(path.join(folder, 'data/sandbox.json')))

/** What a connection has said, and the session that is up. */
class Client {
  constructor (is42) {
    this.is42 = is42
    this.messages = []
    this.wire = []
    this.logons = 0
    this.session = null
  }

  async until (what, found) {
    const end = Date.now() + PATIENCE
    for (;;) {
      const value = found()
      if (value) return value
      const said = this.wire.slice(-12).join('\n')
      if (Date.now() > end) throw new Error(`no ${what} within ${PATIENCE} ms; the last messages:\n${said}`)
      await new Promise(resolve => setTimeout(resolve, 50))
    }
  }

  report (id, type) {
    const is = m => m.type === '8' && m.ClOrdID === id && m.ExecType === type
    return this.until(`report ${type} of ${id}`, () => this.messages.find(is))
  }

  order (id, account, more) {
    const common = { ClOrdID: id, Account: account, HandlInst: '1', Symbol: 'USD/EUR', Side: '2', OrderQty: 100 }
    this.session.send('D', { ...common, TransactTime: new Date(), ...more })
  }
}

class Session extends AsciiSession {
  constructor (config, client) {
    super(config)
    this.client = client
  }

  onReady () {
    this.client.session = this
    this.client.logons++
  }

  onApplicationMsg (type, view) {
    const message = view.toObject()
    this.client.messages.push({ type, possResend: message.StandardHeader.PossResend, ...message })
  }

  onDecoded (_, text) { this.client.wire.push(`< ${text.replaceAll('\x01', '|')}`) }
  onEncoded (_, text) { this.client.wire.push(`> ${text.replaceAll('\x01', '|')}`) }
  onLogon () { return true }
  onStopped () { this.client.session = null }
  cut () { this.transport.duplex.end() }
}

class Launcher extends SessionLauncher {
  constructor (description, client) {
    super(description, null, new JsFixWinstonLogFactory({ ...WinstonLogger.consoleOptions('error'), silent: true }))
    this.client = client
  }

  registerApplication (container) {
    const makeSession = c => new Session(c.resolve(DITokens.IJsFixConfig), this.client)
    container.register(DITokens.FixSession, { useFactory: makeSession })
    container.register(DITokens.FixEntity, { useClass: RecoveringTcpInitiator })
  }
}

function start (version, client, reset) {
  const own = ready.fix.sessions.find(session => session.beginString === version)
  const description = {
    application: {
      reconnectSeconds: 1, type: 'initiator', name: version, protocol: 'ascii',
      tcp: { host: '127.0.0.1', port: ready.fix.port }, dictionary: path.join(folder, `${version}.xml`)
    },
    BeginString: version, SenderCompId: own.senderCompId, TargetCompID: 'DVP', HeartBtInt: 10, EncryptMethod: 0,
    ResetSeqNumFlag: reset, Username: own.username, Password: own.password
  }
  if (client.is42) {
    // FIX 4.2 has neither Username nor Password.
    description.Logon = { RawDataLength: own.password.length, RawData: Buffer.from(own.password) }
  }
  return new Launcher(description, client).run()
}

/** A book's arithmetic, in cents. */
function addsUp (fill, is42) {
  const cents = amount => Math.round(Number(amount ?? 0) * 100)
  const fees = cents(fill.Commission) + (fill.NoMiscFees ?? []).reduce((sum, fee) => sum + cents(fee.MiscFeeAmt), 0)
  const gross = Math.floor(Number((fill.LastQty ?? fill.LastShares) * fill.LastPx * 100).toFixed(6))
  assert.equal(cents(is42 ? fill.SettlCurrAmt : fill.NetMoney), gross - fees, JSON.stringify(fill))
}

async function engage (version) {
  const tag = `${Date.now()}-`
  const client = new Client(version === 'FIX.4.2')
  const fill = client.is42 ? '2' : 'F'
  const [straight, slow] = ['bene_q:dest_10000000', 'bene_q:dest_10000004']
  const first = start(version, client, false)
  await client.until('Logon', () => client.session)

  client.order(tag + '1', straight, { OrdType: '1' })
  addsUp(await client.report(tag + '1', fill), client.is42)

  // A range that the market does not meet.
  client.order(tag + '2', straight, { OrdType: '2', Price: 0.9, TargetPrice: 0.99 })
  await client.report(tag + '2', '0')
  const cancel = { OrigClOrdID: tag + '2', ClOrdID: tag + '2c', Symbol: 'USD/EUR', Side: '2', OrderQty: 100 }
  client.session.send('F', { ...cancel, TransactTime: new Date() })
  await client.report(tag + '2c', '4')

  client.order(tag + '3', slow, { OrdType: '1' })
  await client.report(tag + '3', '0')
  client.session.cut()
  await client.until('second Logon', () => client.logons === 2 && client.session)
  addsUp(await client.report(tag + '3', fill), client.is42)
  client.session.done()
  await first

  // Numbers begin anew, and nothing that was seen is new.
  const again = new Client(client.is42)
  const second = start(version, again, true)
  await again.until('Logon with a reset', () => again.session)
  again.order(tag + '4', straight, { OrdType: '1' })
  addsUp(await again.report(tag + '4', fill), client.is42)
  const seen = new Set(client.messages.map(message => message.ExecID))
  for (const message of again.messages) assert(message.possResend || !seen.has(message.ExecID), message.ExecID)
  again.session.done()
  await second
  const rejects = [...client.wire, ...again.wire].filter(line => /\|35=[3j]\|/.test(line))
  assert.deepEqual(rejects, [], `${version}: rejected`)
  console.log(`${version}: as agreed, nothing rejected`)
}

(async () => {
  for (const version of ['FIX.4.2', 'FIX.4.4']) await engage(version)
  process.exit(0)
})().catch(error => {
  console.error(error)
  process.exit(1)
})
