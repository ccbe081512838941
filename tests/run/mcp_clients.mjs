// Runs calls with an official TypeScript SDK, and prints what it returned.
// Arguments: folder of node_modules, SDK (sdk or client), mode of version negotiation, URL, headers, calls.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, sdk, mode, url, headers, calls] = process.argv.slice(2);
const require = createRequire(`${folder}/index.js`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const options = { requestInit: { headers: JSON.parse(headers) } };
const about = { name: "tests", version: "1" };

let client, transport;
if (sdk === "sdk") {
  const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
  client = new Client(about);
  transport = new StreamableHTTPClientTransport(new URL(url), options);
} else {
  const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
  client = new Client(about, { versionNegotiation: { mode } });
  transport = new StreamableHTTPClientTransport(new URL(url), options);
}

const output = { results: [] };
try {
  await client.connect(transport);
  output.server = client.getServerVersion();
  output.instructions = client.getInstructions();
  output.version = client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion;
  output.tools = (await client.listTools()).tools.map((tool) => tool.name);
  for (const call of JSON.parse(calls)) {
    const { isError, structuredContent, content } = await client.callTool(call);
    output.results.push({ isError: isError ?? false, structuredContent, text: content[0].text });
  }
  await client.close();
} catch (error) {
  output.error = `${error.name}: ${error.message}`;
}
console.log(JSON.stringify(output));
