import { place } from "./layout";
import type { Schema } from "./model";

addEventListener("message", ({ data }: MessageEvent<Schema>) => postMessage(place(data)));
