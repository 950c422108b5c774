// A ClickHouse server of a newer version for tests/live/fleet.sh: the library chDB behind as much of the HTTP interface as offwind takes.
//   usage: fleet_chdb.mjs DIRECTORY PORT      chdb is found from DIRECTORY/.., or by NODE_PATH
import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import zlib from "node:zlib";

const [folder, port] = process.argv.slice(2);
const { Session } = createRequire(import.meta.url)("chdb");
const session = new Session(`${folder}/data`);
const body = `${folder}/body`, ids = `${folder}/ids`;

// Parts of a form by their name. The program's own forms need no more than this.
function form(bytes, boundary) {
  const parts = {}, mark = Buffer.from(`--${boundary}`);
  for (let at = bytes.indexOf(mark), next; (next = bytes.indexOf(mark, at + 1)) > 0; at = next) {
    const head = bytes.indexOf("\r\n\r\n", at);
    parts[/name="(\w+)"/.exec(bytes.toString("latin1", at, head))[1]] = bytes.subarray(head + 4, next - 2);
  }
  return parts;
}

async function answer(url, type, bytes) {
  const database = url.searchParams.get("database") || "default", format = url.searchParams.get("default_format") || "TabSeparated";
  const boundary = /boundary=(.*)/.exec(type)?.[1], insert = url.searchParams.get("query");
  session.query(`USE ${database}`);
  if (insert) {
    const [, table, columns, name] = /^INSERT INTO (\w+) \(([\w,]+)\) FORMAT (\w+)$/.exec(insert);
    fs.writeFileSync(body, bytes);
    return session.query(`INSERT INTO ${table} (${columns}) SELECT ${columns} FROM file('${body}', '${name}')`);
  }
  if (!boundary)
    return (await session.queryAsync(bytes.toString(), { format })).bytes();
  const parts = form(bytes, boundary);
  fs.writeFileSync(ids, parts.ids);
  session.query(`CREATE OR REPLACE TABLE ids ENGINE = Memory AS SELECT * FROM file('${ids}', 'RowBinary', 'id UInt64')`);
  return (await session.queryAsync(parts.query.toString(), { format })).bytes();
}

let last = Promise.resolve(); // requests are answered one after the other: they share a session
http.createServer((request, reply) => {
  const chunks = [];
  request.on("data", chunk => chunks.push(chunk));
  request.on("end", () => {
    last = last.then(async () => {
      const url = new URL(request.url, "http://127.0.0.1"), bytes = Buffer.concat(chunks);
      if (url.pathname === "/ping")
        return reply.end("Ok.\n");
      const text = request.headers["content-encoding"] === "gzip" ? zlib.gunzipSync(bytes) : bytes;
      reply.end(await answer(url, request.headers["content-type"] || "", text));
    }).catch(error => {
      reply.statusCode = 500;
      reply.end(String(error.message));
      console.error(error.message);
    });
  });
}).listen(+port, "127.0.0.1");
