/** The part of Swagger UI that the console uses; the package has no types. */
declare module "swagger-ui-dist/swagger-ui-es-bundle.js" {
  export interface Sent {
    url: string;
    method?: string;
    headers: Record<string, string>;
  }

  /** What Swagger UI gives to plugins; its React is another one than the console's. */
  export interface System {
    React: { createElement(type: unknown, properties: object | null, ...children: unknown[]): unknown };
  }

  export interface Rendered {
    getComponent(name: string, container?: boolean): unknown;
  }

  interface Plugin {
    components?: Record<string, (properties: Rendered) => unknown>;
    wrapComponents?: Record<string, (original: unknown, system: System) => (properties: object) => unknown>;
  }

  interface Options {
    spec: object;
    domNode: HTMLElement;
    deepLinking: boolean;
    validatorUrl: null;
    docExpansion: "list" | "none";
    defaultModelsExpandDepth: number;
    displayRequestDuration: boolean;
    filter: boolean;
    requestInterceptor: (request: Sent) => Sent;
    layout: string;
    plugins: ((system: System) => Plugin)[];
  }

  export default function SwaggerUI(options: Options): unknown;
}
