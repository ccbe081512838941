/** Test receivers of the daemon: /console/data/receivers. */
import { forgetInTab, keepInTab, keptInTab } from "../kit/tab";

export interface NewReceiver {
  name: string;
  url: string;
  secret: string;
}

export interface Received {
  /** Seconds since 1970. */
  at: number;
  headers: Record<string, string>;
  body: string;
  length: number;
  /** Why the signature is invalid, or "". */
  problem: string;
  answer: number;
}

export interface ReceiverState {
  answer: number;
  received: Received[];
}

export const ANSWERS = [200, 400, 500];

const BASE = "/console/data/receivers";
const KEY = "dataapi.receiver";

/** Send a request. Return null if the receiver does not exist. */
async function ask<T>(path: string, body?: object, signal?: AbortSignal): Promise<T | null> {
  const sent = body && { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const response = await fetch(BASE + path, { ...sent, signal: signal ?? null, cache: "no-store" });
  if (!response.ok) throw new Error(((await response.json()) as { message: string }).message);
  return (await response.json()) as T | null;
}

export async function createReceiver(): Promise<NewReceiver> {
  const made = (await ask<NewReceiver>("", {}))!;
  keepInTab(KEY, made);
  return made;
}

/** The receiver of this tab, or null. */
export function keptReceiver(): NewReceiver | null {
  return keptInTab(KEY);
}

export function forgetReceiver(): void {
  forgetInTab(KEY);
}

/** Load the state of a receiver. */
export async function readReceiver(name: string, signal: AbortSignal): Promise<ReceiverState | "gone"> {
  return (await ask<ReceiverState>(`/${name}`, undefined, signal)) ?? "gone";
}

/** Set the response status of a receiver. */
export function tellReceiver(name: string, answer: number): Promise<ReceiverState | null> {
  return ask(`/${name}`, { answer });
}
