import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface Seen {
  method: string
  url: string
  headers: IncomingHttpHeaders
  body: string
}

/** One answer: an object as JSON, or something that a service would not do. */
export type Script = (seen: Seen, response: ServerResponse) => void

export const json =
  (status: number, body: object, headers: Record<string, string> = {}): Script =>
  (_, response) => {
    response.writeHead(status, { 'Content-Type': 'application/json', ...headers }).end(JSON.stringify(body))
  }

export const drop: Script = (_, response) => void response.destroy()

export const error = (status: number, code: string, more: object = {}, headers: Record<string, string> = {}): Script =>
  json(
    status,
    {
      success: false,
      error: { code, message: 'no', docUrl: `/docs/errors/${code}`, requestId: 'r-1', ...more },
    },
    headers,
  )

/** A server that gives these answers one after the other, the last one again and again, and keeps what it was asked. */
export async function fake(...scripts: Script[]): Promise<{ url: string; seen: Seen[]; close: () => void }> {
  const seen: Seen[] = []
  const server: Server = createServer(async (request, response) => {
    let body = ''
    for await (const part of request) body += String(part)
    const one = { method: request.method ?? '', url: request.url ?? '', headers: request.headers, body }
    const script = scripts[Math.min(seen.push(one), scripts.length) - 1]
    script?.(one, response)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return { url, seen, close: () => (server.closeAllConnections(), server.close()) }
}
