import asyncio

from utterd.engines.company import Company


async def settle():
    """Let every task go as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


class Guests:
    """Tasks that are in a company until they are told to leave."""

    def __init__(self, tasks):
        self.company, self._tasks = Company(), tasks
        self.inside, self._leave = [], {}

    def come(self, name, *, alone=False):
        self._leave[name] = asyncio.Event()
        return self._tasks.create_task(self._stay(name, alone=alone))

    async def _stay(self, name, *, alone):
        async with self.company.join(alone=alone):
            self.inside.append(name)
            await self._leave[name].wait()
            self.inside.remove(name)

    async def leave(self, name):
        self._leave[name].set()
        await settle()


async def test_several_are_in_company():
    """As long as nobody has to be alone."""
    async with asyncio.TaskGroup() as tasks:
        guests = Guests(tasks)
        guests.come("a")
        guests.come("b")
        await settle()
        assert guests.inside == ["a", "b"]
        await guests.leave("a")
        await guests.leave("b")


async def test_one_who_has_to_be_alone_waits_and_is_waited_for():
    """It comes after those who are there, and before those who came later."""
    async with asyncio.TaskGroup() as tasks:
        guests = Guests(tasks)
        guests.come("early")
        await settle()
        guests.come("alone", alone=True)
        guests.come("late")
        await settle()
        assert guests.inside == ["early"]
        await guests.leave("early")
        assert guests.inside == ["alone"]
        await guests.leave("alone")
        assert guests.inside == ["late"]
        await guests.leave("late")


async def test_two_who_have_to_be_alone_come_one_after_the_other():
    """Neither is company for the other."""
    async with asyncio.TaskGroup() as tasks:
        guests = Guests(tasks)
        guests.come("one", alone=True)
        guests.come("two", alone=True)
        await settle()
        assert guests.inside == ["one"]
        await guests.leave("one")
        assert guests.inside == ["two"]
        await guests.leave("two")


async def test_one_who_gives_up_waiting_keeps_nobody_out():
    """Its job was called off before its turn."""
    async with asyncio.TaskGroup() as tasks:
        guests = Guests(tasks)
        guests.come("early")
        await settle()
        waiting = guests.come("alone", alone=True)
        guests.come("late")
        await settle()
        waiting.cancel()
        await settle()
        assert guests.inside == ["early", "late"]
        await guests.leave("early")
        await guests.leave("late")
