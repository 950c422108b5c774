// A receiver for tests of what the daemon sends: it takes what the protocol's published rules allow, refuses
// the rest, and rebuilds folded stacks. It is written apart from the senders.
//   usage: node receiver.mjs NODE_MODULES otlp|otlp-grpc|pyroscope|parca [KEY CERTIFICATE]      with a certificate, it speaks TLS
// It prints "PORT N" when it listens, and "CONTROL N". Asked by the test at /control (of gRPC: of the other port): ?behave=WORD
// sets how it behaves from now on; ?forget forgets what was received; ?folded=TYPE and ?stats print it; ?stat=NAME prints one number,
// and ?until=NAME&least=N waits for it: "yes" when it is there, "no" after five seconds without it.
import { createRequire } from 'node:module';
import crypto from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import path from 'node:path';
import zlib from 'node:zlib';
import { Refusal, demand, readRequest } from './otlp.mjs';
import { readPush, readWriteRaw } from './push.mjs';

const [modules, kind, key, certificate] = process.argv.slice(2);
const require = createRequire(path.resolve(modules, 'x.js'));
const protobuf = require('protobufjs');
const here = path.dirname(new URL(import.meta.url).pathname);
const types = new protobuf.Root();
types.loadSync([path.join(here, 'otlp.proto'), path.join(here, 'push.proto')]);
const encode = (type, message) => Buffer.from(types.lookupType(type).encode(message).finish());

let behave = 'ok';
const stats = { requests: 0, accepted: 0, refused: [], again: 0, samples: 0, times: 0, bytes: 0, headers: {}, files: {}, hashes: {}, services: {}, resources: {}, attributes: {} };
const folded = new Map(), ids = new Set(); // folded: lines by sample type
let from = null, to = null;

// Take over samples that were accepted.
function accept({ samples, ids: all, hashes = {} }) {
	if (all.some(id => ids.has(id))) {
		// A window may come twice: the ids say so.
		stats.again++;
		return;
	}
	all.forEach(id => ids.add(id));
	stats.accepted++;
	Object.assign(stats.hashes, hashes);
	for (const s of samples) {
		if (from === null || s.start < from) from = s.start;
		if (to === null || s.end > to) to = s.end;
		for (const k of Object.keys(s.resource)) stats.resources[k] = s.resource[k];
		for (const k of Object.keys(s.attributes)) stats.attributes[k] = s.attributes[k];
		if (s.type === 'samples') {
			const service = s.resource['service.name'] ?? s.resource.service_name;
			stats.services[service] = (stats.services[service] ?? 0) + Number(s.value);
			stats.samples += Number(s.value);
			stats.times += s.times ? Number(s.value) : 0; // samples that have times
		}
		const clean = t => t.replaceAll(';', ':') || '-';
		const line = [...(s.thread === null ? [] : [clean(s.thread)]), ...s.frames.map(([name, suffix]) => clean(name) + suffix)].join(';');
		if (!folded.has(s.type)) folded.set(s.type, new Map());
		folded.get(s.type).set(line, (folded.get(s.type).get(line) ?? 0n) + s.value);
	}
}

function refuse(e) {
	if (!(e instanceof Refusal)) console.error(e);
	stats.refused.push(e.message);
	console.error('refused:', e.message);
}

function checkVersion(values) {
	demand(values.length <= 1 && (values[0] ?? '1') === '1', 'unsupported otlp-profiles-development-version');
}

// ---- HTTP -----------------------------------------------------------------------------------

function otlpHttp(request, body) {
	const headers = { 'Content-Type': 'application/x-protobuf' };
	if (request.method !== 'POST' || request.url !== '/v1development/profiles') return { status: 404, headers: {}, body: '' };
	try {
		demand(request.headers['content-type'] === 'application/x-protobuf', `Content-Type ${request.headers['content-type']}`);
		checkVersion(request.headersDistinct['otlp-profiles-development-version'] ?? []);
		if (request.headers['content-encoding'] === 'gzip') body = zlib.gunzipSync(body);
		else demand(!request.headers['content-encoding'], 'Content-Encoding');
		accept(readRequest(types, body));
		return { status: 200, headers, body: encode('opentelemetry.ExportProfilesServiceResponse', {}) };
	} catch (e) {
		refuse(e);
		return { status: 400, headers, body: encode('opentelemetry.Status', { code: 3, message: e.message }) };
	}
}

function pyroscope(request, body) {
	const json = { 'Content-Type': 'application/json' };
	if (request.method !== 'POST' || request.url !== '/push.v1.PusherService/Push') return { status: 404, headers: json, body: '{"code":"unimplemented"}' };
	if (request.headers['content-type'] !== 'application/proto') return { status: 415, headers: {}, body: '' };
	try {
		demand(request.headers['connect-protocol-version'] === '1', 'Connect-Protocol-Version');
		if (request.headers['content-encoding'] === 'gzip') body = zlib.gunzipSync(body);
		accept(readPush(types, body));
		return { status: 200, headers: { 'Content-Type': 'application/proto' }, body: '' };
	} catch (e) {
		refuse(e);
		return { status: 400, headers: json, body: JSON.stringify({ code: 'invalid_argument', message: e.message }) };
	}
}

const behaviours = {
	busy: r => r.writeHead(503, { 'Retry-After': '1' }).end('later'),
	forbidden: r => r.writeHead(403).end(),
	broken: r => r.writeHead(500).end('oops'),
	never: r => r.writeHead(400, { 'Content-Type': 'text/plain' }).end('\x1b[31mnobody wants this'),
	hang: () => {},
	drip: r => {
		r.writeHead(200, { 'Content-Type': 'application/x-protobuf', 'Content-Length': 1000 });
		const timer = setInterval(() => r.destroyed ? clearInterval(timer) : r.write('\n'), 300);
	},
	page: r => r.writeHead(200, { 'Content-Type': 'text/html' }).end('<html>log in</html>'),
	endless: r => {
		r.writeHead(200, { 'Content-Type': 'application/x-protobuf' });
		const more = () => { while (!r.destroyed && r.write(Buffer.alloc(65536))); };
		r.on('drain', more);
		more();
	},
	headers: r => r.writeHead(200, { 'X-A': 'a'.repeat(200000) }).end(),
	away: r => r.destroy(),
	redirect: r => r.writeHead(302, { Location: '/elsewhere' }).end(),
	rejects: r => r.writeHead(200, { 'Content-Type': 'application/x-protobuf' }).end(encode('opentelemetry.ExportProfilesServiceResponse', { partialSuccess: { rejectedProfiles: 9007199254740991, errorMessage: 'too \x07 many' } })),
};

const number = name => Array.isArray(stats[name]) ? stats[name].length : stats[name];

// Reply when a number is reached; the connection may be closed before.
function wait(name, least, response, end = Date.now() + 5000) {
	if (number(name) >= least || Date.now() >= end || response.destroyed) return response.end(number(name) >= least ? 'yes\n' : 'no\n');
	setTimeout(wait, 20, name, least, response, end);
}

function control(url, response) {
	const q = new URL(url, 'http://x').searchParams;
	if (q.has('behave')) behave = q.get('behave');
	if (q.has('forget')) {
		folded.clear();
		ids.clear();
		from = to = null;
	}
	if (q.has('folded')) response.write([`# ${from} ${to}`, ...[...folded.get(q.get('folded')) ?? []].map(([line, n]) => `${line} ${n}`)].join('\n') + '\n');
	if (q.has('until')) return wait(q.get('until'), Number(q.get('least')), response);
	if (q.has('stat')) response.write(`${number(q.get('stat'))}\n`);
	if (q.has('stats')) response.write(JSON.stringify({ ...stats, from: String(from), to: String(to) }) + '\n');
	response.end();
}

function onRequest(request, response) {
	const chunks = [];
	if (request.url.startsWith('/control')) return control(request.url, response);
	request.on('data', c => chunks.push(c));
	request.on('end', () => {
		const body = Buffer.concat(chunks);
		if (request.method === 'PUT' && request.url.startsWith('/upload/')) return putFile(request, body, response);
		stats.requests++;
		stats.bytes += body.length;
		stats.headers = request.headers;
		if (behaviours[behave]) return behaviours[behave](response);
		const r = (kind === 'pyroscope' ? pyroscope : otlpHttp)(request, body);
		response.writeHead(r.status, r.headers).end(r.body);
	});
}

const tls = key ? { key: fs.readFileSync(key), cert: fs.readFileSync(certificate) } : {};
const server = (key && !isGrpc() ? https : http).createServer({ maxHeaderSize: 1 << 20, ...tls }, onRequest);
server.listen(0, '127.0.0.1', () => {
	console.log(`CONTROL ${server.address().port}`);
	if (!isGrpc()) console.log(`PORT ${server.address().port}`);
});

// ---- gRPC -----------------------------------------------------------------------------------

function isGrpc() {
	return kind === 'otlp-grpc' || kind === 'parca';
}

// Files that programs were made of, as Parca takes them: asked for, begun, put, finished.
const uploads = new Map();
function putFile(request, body, response) {
	const u = uploads.get(request.url.slice('/upload/'.length));
	if (!u || request.headers.authorization || body.length !== u.size) return response.writeHead(400).end();
	u.sha256 = crypto.createHash('sha256').update(body).digest('hex');
	response.writeHead(200).end();
}

if (isGrpc()) {
	const grpc = require('@grpc/grpc-js');
	const method = handle => (call, done) => {
		stats.requests++;
		stats.headers = call.metadata.getMap();
		if (behave === 'hang') return;
		if (behave === 'busy') return done({ code: grpc.status.UNAVAILABLE, details: 'later' });
		if (behave === 'forbidden') return done({ code: grpc.status.UNAUTHENTICATED, details: 'who are you?' });
		if (behave === 'never') return done({ code: grpc.status.INVALID_ARGUMENT, details: 'nobody wants ümlauts' });
		if (behave === 'page') return done(null, Buffer.from('<html>'));
		try {
			done(null, handle(call.request, call));
		} catch (e) {
			refuse(e);
			done({ code: grpc.status.INVALID_ARGUMENT, details: e.message });
		}
	};
	const unary = p => ({ path: p, requestStream: false, responseStream: false, requestSerialize: b => b, requestDeserialize: b => b, responseSerialize: b => b, responseDeserialize: b => b });
	const grpcServer = new grpc.Server();
	const add = (service, methods) => grpcServer.addService(
		Object.fromEntries(Object.keys(methods).map(m => [m, unary(`/${service}/${m}`)])),
		Object.fromEntries(Object.entries(methods).map(([m, handle]) => [m, method(handle)])));
	const decode = (type, bytes) => types.lookupType(type).decode(bytes);
	if (kind === 'otlp-grpc') {
		add('opentelemetry.proto.collector.profiles.v1development.ProfilesService', {
			Export: (bytes, call) => {
				checkVersion(call.metadata.get('otlp-profiles-development-version'));
				accept(readRequest(types, bytes));
				return encode('opentelemetry.ExportProfilesServiceResponse', {});
			},
		});
	} else {
		const seen = new Set();
		add('parca.profilestore.v1alpha1.ProfileStoreService', {
			WriteRaw: bytes => {
				// Parca has no ids: equal requests are one window that came twice.
				const id = crypto.createHash('sha256').update(bytes).digest('hex');
				const all = readWriteRaw(types, decode('push.WriteRawRequest', bytes));
				accept({ ...all, ids: [id] });
				return encode('push.WriteRawResponse', {});
			},
		});
		add('parca.debuginfo.v1alpha1.DebuginfoService', {
			ShouldInitiateUpload: bytes => {
				const r = decode('push.ShouldInitiateUploadRequest', bytes);
				demand(/^[0-9a-f]{40}$/.test(r.buildId) && r.hash, `build-id ${r.buildId}`);
				demand(!seen.has(r.buildId), 'asked twice');
				seen.add(r.buildId);
				return encode('push.ShouldInitiateUploadResponse', { shouldInitiateUpload: true, reason: 'first time' });
			},
			InitiateUpload: bytes => {
				const r = decode('push.InitiateUploadRequest', bytes), id = crypto.randomUUID();
				demand(seen.has(r.buildId) && Number(r.size) > 0, 'begun before it was asked');
				uploads.set(id, { buildId: r.buildId, size: Number(r.size), hash: r.hash });
				return encode('push.InitiateUploadResponse', { uploadInstructions: { buildId: r.buildId, uploadId: id, uploadStrategy: 2, signedUrl: `http://127.0.0.1:${server.address().port}/upload/${id}` } });
			},
			MarkUploadFinished: bytes => {
				const r = decode('push.MarkUploadFinishedRequest', bytes), u = uploads.get(r.uploadId);
				demand(u && u.buildId === r.buildId && u.sha256 === u.hash, 'finished, but it is not there');
				stats.files[r.buildId] = u.sha256;
				return encode('push.MarkUploadFinishedResponse', {});
			},
		});
	}
	const credentials = key ? grpc.ServerCredentials.createSsl(null, [{ private_key: tls.key, cert_chain: tls.cert }]) : grpc.ServerCredentials.createInsecure();
	grpcServer.bindAsync('127.0.0.1:0', credentials, (e, port) => {
		if (e) throw e;
		console.log(`PORT ${port}`);
	});
}
