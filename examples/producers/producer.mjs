// Ask the model "digits" which digit digit.json shows, from Node and without a dependency.
// Prints the label. Exit codes: 0 answered, 1 answered with an error, 75 no reply in time.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { setTimeout as pause } from "node:timers/promises";

const WAIT_MS = 10_000;
const POLL_MS = 50;

// Redis speaks RESP: a command is an array of strings, each with its length in bytes.
const encode = (words) =>
  `*${words.length}\r\n` +
  words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join("");

// The first answer in the bytes received so far, or undefined while its end is missing.
function decode(bytes) {
  const end = bytes.indexOf("\r\n");
  if (end < 0) return undefined;
  const head = bytes.toString("utf8", 1, end);
  const kind = String.fromCharCode(bytes[0]);
  if (kind === "-") throw new Error(`Redis refused: ${head}`);
  if (kind !== "$") return head; // a status or a number
  const size = Number(head);
  if (size < 0) return null;
  const start = end + 2;
  if (bytes.length < start + size + 2) return undefined;
  return bytes.toString("utf8", start, start + size);
}

async function command(socket, ...words) {
  socket.write(encode(words));
  let bytes = Buffer.alloc(0);
  for (;;) {
    const [chunk] = await once(socket, "data");
    bytes = Buffer.concat([bytes, chunk]);
    const answer = decode(bytes);
    if (answer !== undefined) return answer;
  }
}

// redis://[[user]:password@]host[:port][/database], or unix:///path
async function open(address) {
  const url = new URL(address);
  const socket =
    url.protocol === "unix:"
      ? connect(url.pathname)
      : connect(Number(url.port || 6379), url.hostname);
  await once(socket, "connect");
  // Without this a server that hangs up would leave command() waiting for ever.
  socket.on("end", () => socket.destroy(new Error("Redis closed the connection")));
  if (url.protocol === "unix:") return socket;
  const secret = [url.username, url.password].filter(Boolean).map(decodeURIComponent);
  if (secret.length > 0) await command(socket, "AUTH", ...secret);
  if (url.pathname.length > 1) await command(socket, "SELECT", url.pathname.slice(1));
  return socket;
}

const socket = await open(process.env.INFERQ_REDIS_URL ?? "redis://localhost:6379/0");
const data = JSON.parse(readFileSync(new URL("digit.json", import.meta.url), "utf8"));
// An id names one request for as long as its reply is kept: never use one twice.
const id = randomUUID();
const request = { id, inputs: [{ name: "pixels", datatype: "FP32", shape: [1, 64], data }] };
await command(socket, "RPUSH", "inferq:digits", JSON.stringify(request));

// Reading a reply does not consume it. Before it is written there is null or "".
let reply = null;
const deadline = performance.now() + WAIT_MS;
while (!reply && performance.now() < deadline) {
  reply = await command(socket, "GET", `{inferq:digits}:reply:${id}`);
  if (!reply) await pause(POLL_MS);
}
socket.destroy();

if (!reply) {
  console.error(`no reply to ${id} after ${WAIT_MS / 1000} s: does a worker run?`);
  process.exitCode = 75;
} else {
  const { error, parameters, outputs } = JSON.parse(reply);
  if (error === undefined) {
    console.log(outputs[0].data[0]);
  } else {
    console.error(`${parameters.code}: ${error}`);
    process.exitCode = 1;
  }
}
