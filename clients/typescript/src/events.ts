import { setTimeout as sleep } from 'node:timers/promises'

import type { Event, EventPage, EventType } from './api.js'

export interface FollowOptions {
  /** Where to go on: the last `cursor` you kept. Without it the feed begins 15 days ago. */
  since?: string | undefined
  type?: EventType
  intentId?: string
  signal?: AbortSignal
  /** How long a missing event is waited for before it counts as missing. */
  graceMs?: number
}

export interface Followed {
  event: Event
  /** Keep it once the event is dealt with: from here on nothing is left out, and at most one page comes again. */
  cursor: string | undefined
  /** Events of the same intent before this one that the feed does not have: by `sequence`, and none as a rule. */
  missing: readonly number[]
}

export interface EventQuery {
  since?: string | undefined
  type?: string | undefined
  intentId?: string | undefined
  limit?: number
  wait?: number
}

type List = (query: EventQuery, signal: AbortSignal | undefined) => Promise<EventPage>

/** Follows the feed for ever. Each intent's events come in the order of `sequence`; missing ones are asked for. */
export async function* follow(list: List, options: FollowOptions): AsyncGenerator<Followed, never> {
  const { type, intentId, signal, graceMs = 5_000 } = options
  /** The last `sequence` of each intent that is under way. */
  const last = new Map<string, number>()
  let cursor = options.since
  for (;;) {
    const asked = performance.now()
    const page = await list({ since: cursor, type, intentId, limit: 100, wait: 8 }, signal)
    for (const [index, event] of page.data.entries()) {
      const before = last.get(event.intentId)
      // Of a single type, and of a made-up event, the events before are not in the feed.
      const isWhole = type === undefined && before !== undefined
      if (isWhole && event.sequence <= before) continue
      let missing: number[] = []
      if (isWhole && event.sequence > before + 1) {
        const recovered = await recover(list, event, before, graceMs, signal)
        for (const found of recovered.events) yield { event: found, cursor, missing: [] }
        missing = recovered.missing
      }
      if (event.isTerminal || event.intentId.startsWith('sample_')) last.delete(event.intentId)
      else last.set(event.intentId, event.sequence)
      yield { event, cursor: index === page.data.length - 1 ? page.nextCursor : cursor, missing }
    }
    cursor = page.nextCursor
    // Something between may answer at once in place of the service.
    if (page.data.length === 0 && performance.now() - asked < 1_000) await sleep(1_000, undefined, { signal })
  }
}

/** The events of an intent between `before` and `event`, and which of them are not there even after a time. */
async function recover(list: List, event: Event, before: number, graceMs: number, signal?: AbortSignal) {
  const end = performance.now() + graceMs
  const wanted = Array.from({ length: event.sequence - before - 1 }, (_, index) => before + 1 + index)
  for (;;) {
    const found = new Map<number, Event>()
    let page: EventPage | undefined
    do {
      page = await list({ since: page?.nextCursor, intentId: event.intentId, limit: 100 }, signal)
      for (const each of page.data) found.set(each.sequence, each)
    } while (page.hasMore)
    const missing = wanted.filter((sequence) => !found.has(sequence))
    if (missing.length === 0 || performance.now() > end) {
      return { events: wanted.flatMap((sequence) => found.get(sequence) ?? []), missing }
    }
    await sleep(1_000, undefined, { signal })
  }
}
