// Responses of supabase-js in the forms that its documentation shows, and their rows.
const PHRASES = {
  200: "OK",
  201: "Created",
  204: "No Content",
  206: "Partial Content",
  300: "Multiple Choices",
  400: "Bad Request",
  401: "Unauthorized",
  402: "Payment Required",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  406: "Not Acceptable",
  409: "Conflict",
  416: "Requested Range Not Satisfiable",
};

export const gives = (data, { status = 200, count = null } = {}) => ({
  success: true,
  error: null,
  data,
  count,
  status,
  statusText: PHRASES[status],
});
export const refused = (status, code, message, details = null, hint = null) => ({
  success: false,
  error: { code, details, hint, message },
  data: null,
  count: null,
  status,
  statusText: PHRASES[status],
});

export const norway = { id: 1, name: "Norway", note: null };
export const chile = { id: 2, name: "Chile", note: "long" };
export const nepal = { id: 3, name: "Nepal", note: "high" };
export const nameless = { id: 4, name: null, note: null };
export const emerald = { id: 1, room: "Emerald", during: '["2024-01-01 13:00:00","2024-01-01 15:00:00")' };
export const topaz = { id: 2, room: "Topaz", during: '["2024-01-02 09:00:00","2024-01-02 10:00:00")' };

const rows = (member) => (...values) => values.map((value) => ({ [member]: value }));
export const ids = rows("id");
export const names = rows("name");
export const titles = rows("title");
