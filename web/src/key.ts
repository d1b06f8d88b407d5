// What the page shows its server to be known. It is no cookie: those go to every port of this machine, and another
// user's web server may listen on one; what a browser stores belongs to this address and port alone.
const NAME = "key";

// The key of a link stands behind the `#` once, and is taken out of the address before anything else is done.
const given = /^#key=([\w-]+)$/.exec(location.hash)?.[1]; // #key=mJ0x-3_f
if (given) {
  localStorage.setItem(NAME, given);
  history.replaceState(null, "", "/");
}

export const key = (): string => sessionStorage.getItem(NAME) ?? localStorage.getItem(NAME) ?? "";

// The key of a sign-in ends with the tab.
export function signedIn(value: string): void {
  sessionStorage.setItem(NAME, value);
}

export function signedOut(): void {
  sessionStorage.removeItem(NAME);
}
