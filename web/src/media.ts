// Whether a media query holds now.
import { useEffect, useState } from "preact/hooks";

export const DARK = "(prefers-color-scheme: dark)";
export const TELEPHONE = "(max-width: 460px)"; // style.css has the same

export function useMedia(query: string): boolean {
  const [holds, setHolds] = useState(matchMedia(query).matches);
  useEffect(() => {
    const asked = matchMedia(query);
    const onChange = () => setHolds(asked.matches);
    asked.addEventListener("change", onChange);
    return () => asked.removeEventListener("change", onChange);
  }, [query]);
  return holds;
}
