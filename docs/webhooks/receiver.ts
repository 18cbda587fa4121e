// Receives dvp webhooks. Needs Node 20 and nothing else at run time.
//
//     npx tsc --types node --module nodenext receiver.ts && WEBHOOK_SECRET=whsec_… PORT=3000 node receiver.js
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage } from "node:http";
import { type AddressInfo } from "node:net";

const TOLERANCE_SECONDS = 300;
const BODY_BYTES_MAX = 64 * 1024;

/** Whether a delivery is genuine: one v1 matches the raw body, and t is near. */
export function verify(secret: string, header: string, body: Buffer, now: number): boolean {
  const parts = header.split(",").map((part) => part.trim().split("="));
  const times = parts.filter(([name]) => name === "t").map(([, value]) => value ?? "");
  const given = parts.filter(([name]) => name === "v1").map(([, value]) => value ?? "");
  const t = times[0] ?? "";
  if (times.length !== 1 || !/^[0-9]+$/.test(t)) return false;
  // The whole secret is the key, whsec_ included.
  const ours = createHmac("sha256", secret).update(`${t}.`).update(body).digest("hex");
  const same = (value: string) =>
    value.length === ours.length && timingSafeEqual(Buffer.from(value), Buffer.from(ours));
  const matches = given.map((value) => /^[0-9a-f]*$/.test(value) && same(value));
  return matches.includes(true) && Math.abs(now - Number(t)) <= TOLERANCE_SECONDS;
}

async function read(request: IncomingMessage): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request) {
    length += (chunk as Buffer).length;
    if (length > BODY_BYTES_MAX) return undefined;
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks);
}

const seen = new Set<string>(); // A database table with a unique id, in earnest.

const server = createServer(async (request, response) => {
  const body = await read(request);
  if (body === undefined) return response.writeHead(413).end();
  const header = String(request.headers["svc-signature"] ?? "");
  if (!verify(process.env.WEBHOOK_SECRET ?? "", header, body, Date.now() / 1000)) {
    return response.writeHead(401).end();
  }
  const event = JSON.parse(body.toString("utf8")) as { id: string };
  if (!seen.has(event.id)) {
    seen.add(event.id);
    console.log("handled", event.id);
  }
  return response.writeHead(204).end();
});

server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
  console.log("listening", (server.address() as AddressInfo).port);
});
