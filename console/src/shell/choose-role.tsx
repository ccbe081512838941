import { choosing } from "./identity";

/** Opens the dialog that chooses whom the console calls the APIs as. */
export function ChooseRole() {
  return <button type="button" className="button" onClick={() => choosing.set(true)} aria-haspopup="dialog">Choose the role</button>;
}
