type HeadersFieldProps = { headers: [string, string][]; onChange: (headers: [string, string][]) => void };

/** Extra headers of deliveries. */
export function HeadersField({ headers, onChange }: HeadersFieldProps) {
  const put = (index: number, pair: [string, string]) => onChange(headers.map((each, at) => (at === index ? pair : each)));
  return (
    <fieldset className="headers-field">
      <legend>Custom headers</legend>
      {headers.map(([name, value], index) => (
        <div className="field-row" key={index}>
          <input className="code" aria-label={`Name of header ${index + 1}`} placeholder="X-Source" value={name} onChange={(event) => put(index, [event.target.value, value])} required />
          <input className="code" aria-label={`Value of header ${index + 1}`} value={value} onChange={(event) => put(index, [name, event.target.value])} />
          <button type="button" className="button" aria-label={`Remove header ${index + 1}`} onClick={() => onChange(headers.filter((_, at) => at !== index))}>Remove</button>
        </div>
      ))}
      <button type="button" className="button" onClick={() => onChange([...headers, ["", ""]])}>Add a header</button>
    </fieldset>
  );
}
