import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import { Client, type Followed, type FollowOptions } from '../src/index.js'
import { type Script, drop, fake, json } from './fake.js'

const event = (intentId: string, sequence: number, isTerminal = false) => ({
  object: 'event',
  id: `evt_${intentId}_${sequence}`,
  intentId,
  sequence,
  isTerminal,
})

const page = (nextCursor: string, ...data: object[]): Script => json(200, { data, hasMore: false, nextCursor })

/** The first events that a follower sees of these pages: ids and cursors, and the queries that were asked. */
async function first(count: number, scripts: Script[], options: FollowOptions = {}) {
  const server = await fake(...scripts)
  const client = new Client({ baseUrl: server.url, apiKey: 'k', retryForMs: 100, log: () => {} })
  const seen: Followed[] = []
  try {
    for await (const followed of client.events(options)) if (seen.push(followed) === count) break
  } finally {
    server.close()
  }
  return {
    events: seen.map(({ event: { id }, cursor, missing }) => [id.slice(4), cursor, ...missing]),
    urls: server.seen.map(({ url }) => url),
  }
}

describe('a follower of the feed', { concurrency: true }, () => {
  test('goes from page to page, and its cursor leaves nothing out', async () => {
    const { events, urls } = await first(3, [page('c1', event('a', 1), event('b', 1)), page('c2', event('a', 2))], {
      since: 'c0',
    })
    assert.deepEqual(events, [
      ['a_1', 'c0'],
      ['b_1', 'c1'],
      ['a_2', 'c2'],
    ])
    assert.deepEqual(urls, ['/v1/events?since=c0&limit=100&wait=8', '/v1/events?since=c1&limit=100&wait=8'])
  })

  test('goes on after an outage', async () => {
    assert.deepEqual((await first(1, [drop, page('c1', event('a', 1))])).events, [['a_1', 'c1']])
  })

  test('gets missing events before the ones that follow them', async () => {
    const { events, urls } = await first(6, [
      page('c1', event('a', 1), event('b', 7), event('a', 4)),
      page('r1', event('a', 1), event('a', 3)),
      page('r2', event('a', 1), event('a', 2), event('a', 3), event('a', 4)),
      // A late one that was given already is left out.
      page('c2', event('a', 3), event('a', 5)),
    ])
    assert.deepEqual(
      events.map(([id]) => id),
      ['a_1', 'b_7', 'a_2', 'a_3', 'a_4', 'a_5'],
    )
    assert.equal(urls[1], '/v1/events?intentId=a&limit=100')
  })

  test('says which events it cannot get, and goes on', async () => {
    const scripts = [page('c1', event('a', 1)), page('c2', event('a', 4)), page('r1', event('a', 3))]
    const { events } = await first(3, scripts, { graceMs: 500 })
    assert.deepEqual(events, [
      ['a_1', 'c1'],
      ['a_3', 'c1'],
      ['a_4', 'c2', 2],
    ])
  })

  test('looks for no gap where there is none: one type, made-up events', async () => {
    const pages = [page('c1', event('sample_a', 1), event('sample_a', 5), event('a', 5, true), event('a', 8))]
    assert.equal((await first(4, pages)).urls.length, 1)
    assert.equal(
      (await first(2, [page('c1', event('a', 1), event('a', 5))], { type: 'payout.completed' })).urls.length,
      1,
    )
  })

  test('takes no page that leads nowhere', async () => {
    await assert.rejects(first(2, [page('c0', event('a', 1))], { since: 'c0' }), { name: 'UnexpectedAnswerError' })
    await assert.rejects(first(1, [json(200, { data: {}, nextCursor: 'c' })]), { name: 'UnexpectedAnswerError' })
  })

  test('does not hurry when empty pages come at once', async () => {
    const began = Date.now()
    await first(1, [page('c1'), page('c2', event('a', 1))])
    assert.ok(Date.now() - began >= 900)
  })
})
