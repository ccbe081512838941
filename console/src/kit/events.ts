/** One server-sent event. */
export interface ServerEvent {
  name: string;
  data: string;
}

/** Yield the events of a response, parsed as in the HTML standard. */
export async function* eventsOf(response: Response): AsyncGenerator<ServerEvent> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop()!;
    for (const block of blocks) {
      const fields = block.split("\n").map((line) => /^(\w*): ?(.*)$/.exec(line) ?? ["", "", ""]);
      const of = (name: string) => fields.filter((field) => field[1] === name).map((field) => field[2]!);
      const [name] = of("event");
      if (name) yield { name, data: of("data").join("\n") };
    }
  }
}

export const streams = (response: Response): boolean => response.headers.get("content-type")?.startsWith("text/event-stream") ?? false;
